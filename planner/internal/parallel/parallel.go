// Package parallel shares the calls of a loop out among the processors.
package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// For calls work for 0 <= i < count on all processors, each with scratch space of its own; work must not depend on the
// order of the calls. It returns the context's error when that has ended, and then may have left calls out.
func For[T any](ctx context.Context, count int, work func(scratch *T, i int)) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), count) {
		wg.Go(func() {
			var scratch T
			for i := int(next.Add(1)) - 1; i < count && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				work(&scratch, i)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}
