package pipeline

import (
	"context"
	"fmt"
	"strings"
)

// dryRunDriver is a driver in a dry run.
type dryRunDriver struct {
	*compiler
	next  func() (struct{}, bool)
	stop  func()
	pause func() bool // lets others go on; false when the dry run is over
	moves int         // it has begun, or received something
	on    bool        // it has not ended
	err   error
}

// statuses says what drivers are at.
func statuses(parts []*dryRunDriver) string {
	var all []string
	for _, p := range parts {
		all = append(all, fmt.Sprintf("device %d: %s", p.Number, p.status()))
	}
	return strings.Join(all, "\n")
}

// dryRunKey is the key of a driver in the context of its dry run.
type dryRunKey struct{}

// receive takes what another driver sends. Errors: the context's.
func receive[T any](ctx context.Context, from <-chan T) (v T, err error) {
	if p, ok := ctx.Value(dryRunKey{}).(*dryRunDriver); ok {
		for len(from) == 0 {
			if !p.pause() {
				return v, ErrStopped
			}
		}
		p.moves++
	}
	select {
	case v = <-from:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
