// Package await lets a caller go on when its context is canceled, whatever long work it has begun.
package await

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Do returns the results of work, or the context's error as soon as it is canceled. Work is then left alone until it looks at the context
// itself, and its results are dropped. A deadline leaves nothing alone: work may have results by then. A panic of work is the caller's.
func Do[T any](ctx context.Context, work func() (T, error)) (result T, err error) {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return result, err
	}
	done := make(chan outcome[T], 1)
	go func() {
		var o outcome[T]
		defer func() {
			if p := recover(); p != nil {
				o.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			done <- o
		}()
		o.result, o.err = work()
	}()
	select {
	case <-ctx.Done():
	case o := <-done:
		done <- o
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return result, err
	}
	return (<-done).get()
}

// outcome is how work ended.
type outcome[T any] struct {
	result   T
	err      error
	panicked string // and where; "": it did not
}

func (o outcome[T]) get() (T, error) {
	if o.panicked != "" {
		panic(o.panicked)
	}
	return o.result, o.err
}
