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

// Ranges calls work on all processors, for ranges that together are 0 to n-1. Each has at least least numbers, where there are as many. work must
// not depend on where ranges begin and end.
func Ranges(n, least int, work func(from, to int)) {
	parts := max(1, min(runtime.GOMAXPROCS(0), n/least))
	var wg sync.WaitGroup
	for part := 1; part < parts; part++ {
		wg.Go(func() { work(part*n/parts, (part+1)*n/parts) })
	}
	work(0, n/parts)
	wg.Wait()
}
