package world

import (
	"context"
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

// together joins all ranks of a world over loopback; change may change the options of each. It is left at the end of the test.
func together(t testing.TB, size int, change func(o *Options)) []*World {
	t.Helper()
	address := freeAddress(t)
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
