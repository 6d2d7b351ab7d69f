package tcp

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/runtime/world"
)

// LostError says that the connection of a way is lost.
type LostError struct {
	world.Way
	toward string
	err    error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("tcp: way %s: the connection %s is lost: %v", e.Name, e.toward, e.err)
}

// Unwrap returns the connection's error.
func (e *LostError) Unwrap() error { return e.err }

// cause returns why a call really failed, if it has.
func (f *fabric) cause(err error) error {
	if err == nil {
		return nil
	}
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		return f.world.Cause(f.ctx, err, f.patience)
	}
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return err
}
