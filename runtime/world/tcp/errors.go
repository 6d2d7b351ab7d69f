package tcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plimsoll/runtime/world"
)

// SizeError says that the two ends of a way have other messages in mind.
type SizeError struct {
	world.Way
	Sent     uint64 // bytes
	Expected int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("tcp: way %s: rank %d sent a message of %d bytes, rank %d expected %d", e.Name, e.From, e.Sent, e.To, e.Expected)
}

// LostError says that the connection of a way is lost.
type LostError struct {
	world.Way
	toward string
	err    error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("tcp: way %s: the connection %s is lost: %v", e.Name, e.toward, e.err)
}

// Unwrap returns what the connection says.
func (e *LostError) Unwrap() error { return e.err }

// cause returns why a call really failed. A connection is lost first, and the world knows why a moment later: which rank died, not
// who waited for it.
func (f *fabric) cause(err error) error {
	var lost *LostError
	if f.ctx.Err() == nil && errors.As(err, &lost) {
		timer := time.NewTimer(f.patience)
		defer timer.Stop()
		select {
		case <-f.ctx.Done():
		case <-timer.C:
		}
	}
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return err
}
