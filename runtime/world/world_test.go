package world

import (
	"context"
	"sync"
	"testing"

	"plimsoll/internal/freeport/freeporttest"
)

// together joins all ranks of a world over loopback; change may change the options of each. It is left at the end of the test.
func together(t testing.TB, size int, change func(o *Options)) []*World {
	t.Helper()
	address := freeporttest.Address(t)
	worlds := make([]*World, size)
	var all sync.WaitGroup
	for rank := range size {
		o := Options{Identity: Identity{Rank: rank, Size: size, LocalRank: rank, Address: address}}
		if change != nil {
			change(&o)
		}
		all.Go(func() {
			w, err := Join(t.Context(), o)
			if worlds[rank] = w; err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(worlds, func(w *World) { _ = w.Leave(context.Background()) }) })
	return worlds
}

// each does something on all ranks at once.
func each(worlds []*World, do func(w *World)) {
	var all sync.WaitGroup
	for _, w := range worlds {
		all.Go(func() { do(w) })
	}
	all.Wait()
}
