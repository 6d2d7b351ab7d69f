package world

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
)

// freeAddress is one at which nothing listens now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// joinAll joins several worlds' ranks at once; change may change the options of each.
func joinAll(t testing.TB, size int, change func(o *Options)) ([]*World, []error) {
	t.Helper()
	address := freeAddress(t)
	worlds, errs := make([]*World, size), make([]error, size)
	var all sync.WaitGroup
	for rank := range size {
		o := Options{Identity: Identity{Rank: rank, Size: size, LocalRank: rank, Address: address}}
		if change != nil {
			change(&o)
		}
		all.Go(func() { worlds[rank], errs[rank] = Join(t.Context(), o) })
	}
	all.Wait()
	return worlds, errs
}

// together is joinAll where all must succeed. Its worlds are left at the end of the test.
func together(t testing.TB, size int, change func(o *Options)) []*World {
	t.Helper()
	worlds, errs := joinAll(t, size, change)
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
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

func TestCollectives(t *testing.T) {
	for _, size := range []int{1, 2, 5} {
		worlds := together(t, size, nil)
		each(worlds, func(w *World) {
			for round := range 20 {
				parts, err := w.AllGather(t.Context(), fmt.Append(nil, w.Rank(), " in ", round))
				if err != nil || len(parts) != size {
					t.Errorf("rank %d: %d parts, %v", w.Rank(), len(parts), err)
					return
				}
				for rank, part := range parts {
					if want := fmt.Sprint(rank, " in ", round); string(part) != want {
						t.Errorf("%q, want %q", part, want)
					}
				}
			}
			if err := w.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
