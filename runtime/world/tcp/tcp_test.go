package tcp

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"plimsoll/runtime/world"
)

// together joins the ranks of a world in this process.
func together(t testing.TB, size int, change func(o *world.Options)) []*world.World {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	worlds := make([]*world.World, size)
	each(size, func(rank int) {
		o := world.Options{Identity: world.Identity{Rank: rank, Size: size, Address: address}}
		if change != nil {
			change(&o)
		}
		w, err := world.Join(t.Context(), o)
		if worlds[rank] = w; err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(size, func(rank int) { _ = worlds[rank].Leave(context.Background()) }) })
	return worlds
}

func each(size int, do func(rank int)) {
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() { do(rank) })
	}
	all.Wait()
}

// opened returns open fabrics of several ranks.
func opened(t testing.TB, worlds []*world.World, ways []world.Way) []world.Fabric {
	t.Helper()
	fabrics := make([]world.Fabric, len(worlds))
	each(len(worlds), func(rank int) {
		fabrics[rank] = New(worlds[rank])
		if err := fabrics[rank].Open(t.Context(), ways); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
	t.Cleanup(func() { each(len(worlds), func(rank int) { _ = fabrics[rank].Close() }) })
	if t.Failed() {
		t.FailNow()
	}
	return fabrics
}

// Messages of random sizes on random ways, all at once, arrive whole and in order; what was sent is counted to the byte.
func TestMessagesArriveInOrder(t *testing.T) {
	const size, most, messages = 3, 300 << 10, 40
	r := rand.New(rand.NewPCG(1, 2))
	var ways []world.Way
	lengths := [][]int{}
	want := [size]int64{}
	for i := range 12 {
		w := world.Way{Name: fmt.Sprint("w", i), From: r.IntN(size), To: r.IntN(size), Bytes: most}
		ways = append(ways, w)
		var all []int
		for range messages {
			n := r.IntN(1 << r.IntN(19))
			all, want[w.From] = append(all, n), want[w.From]+int64(n)
		}
		lengths = append(lengths, all)
	}
	fabrics := opened(t, together(t, size, nil), ways)
	var all sync.WaitGroup
	for way, w := range ways {
		all.Go(func() {
			for k, n := range lengths[way] {
				if err := fabrics[w.From].Send(way, bytes.Repeat([]byte{byte(way*messages + k)}, n)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for k, n := range lengths[way] {
				p := make([]byte, n)
				if err := fabrics[w.To].Receive(way, p); err != nil || !bytes.Equal(p, bytes.Repeat([]byte{byte(way*messages + k)}, n)) {
					t.Errorf("message %d of way %d: %v", k, way, err)
					return
				}
			}
		})
	}
	all.Wait()
	sent := int64(0)
	for rank, f := range fabrics {
		m, b := f.Sent()
		if sent += m; b != want[rank] {
			t.Errorf("rank %d has sent %d bytes, want %d", rank, b, want[rank])
		}
	}
	if sent != int64(len(ways)*messages) {
		t.Errorf("%d messages", sent)
	}
}
