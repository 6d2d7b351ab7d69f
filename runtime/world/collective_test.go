package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// script describes the collectives that all ranks of a world run, in one order, with parts that follow from rank and step.
type script struct {
	seed  uint64
	steps int
}

// part returns the bytes that a rank gives in a step.
func (s script) part(rank, step int) []byte {
	r := rand.New(rand.NewPCG(s.seed, uint64(rank)<<32|uint64(step)))
	return bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(1<<r.IntN(16)))
}

// play plays a script on one rank, and posts between the steps.
func (s script) play(t *testing.T, w *World) {
	common := rand.New(rand.NewPCG(s.seed, 1<<40))
	for step := range s.steps {
		if err := w.Post("order", fmt.Append(nil, w.Rank(), " ", step)); err != nil {
			t.Error(err)
		}
		own := s.part(w.Rank(), step)
		switch root := common.IntN(w.Size()); common.IntN(4) {
		case 0:
			got, err := w.Broadcast(t.Context(), root, own)
			if err != nil || !bytes.Equal(got, s.part(root, step)) {
				t.Errorf("step %d: %d bytes of rank %d, %v", step, len(got), root, err)
			}
		case 1:
			if err := w.Agree(t.Context(), map[string]string{"step": fmt.Sprint(step)}); err != nil {
				t.Error(err)
			}
		case 2:
			err := w.Agree(t.Context(), map[string]string{"a": "1", "b": map[bool]string{true: "x", false: "y"}[w.Rank() < root]})
			e, differ := errors.AsType[*DisagreementError](err)
			if differ != (root > 0) || differ && (e.What != "b" || e.Ranks != [2]int{0, root} || e.Values != [2]string{"x", "y"} || e.Hosts[1] != w.Hosts()[root]) {
				t.Errorf("step %d: ranks from %d on differ: %v", step, root, err)
			}
		default:
			parts, err := w.AllGather(t.Context(), own)
			for rank, part := range parts {
				if !bytes.Equal(part, s.part(rank, step)) {
					t.Errorf("step %d: part of rank %d", step, rank)
				}
			}
			if err != nil || len(parts) != w.Size() {
				t.Errorf("step %d: %d parts, %v", step, len(parts), err)
			}
		}
	}
}

// Several worlds run in one process, over loopback, TLS and all. Every collective gives every rank the same, and messages arrive everywhere
// in one order. Late handlers miss no message, and all messages have been handled when the world has been left.
func TestCollectivesAndMessages(t *testing.T) {
	t.Parallel()
	epochs := sync.Map{}
	var worlds sync.WaitGroup
	for i, size := range []int{1, 2, 3, 5} {
		worlds.Go(func() {
			s := script{uint64(i), 60}
			orders := make([][]string, size)
			each(together(t, size, nil), func(w *World) {
				add := func(from int, data []byte) {
					orders[w.Rank()] = append(orders[w.Rank()], fmt.Sprint(from, ": ", string(data)))
				}
				if w.Rank()%2 == 0 {
					w.Handle("order", add)
				}
				s.play(t, w)
				if w.Rank()%2 == 1 {
					w.Handle("order", add)
				}
				if err := w.Leave(t.Context()); err != nil {
					t.Error(err)
				}
				if !errors.Is(context.Cause(w.Context()), ErrLeft) {
					t.Errorf("the world ended with %v", context.Cause(w.Context()))
				}
				epochs.Store(w.Epoch(), true)
			})
			for rank, order := range orders {
				if len(order) != size*s.steps || !slices.Equal(order, orders[0]) {
					t.Errorf("rank %d of %d handled %d messages, or in another order", rank, size, len(order))
				}
			}
		})
	}
	worlds.Wait()
	n := 0
	epochs.Range(func(any, any) bool { n++; return true })
	if n != 4 {
		t.Errorf("%d epochs of 4 worlds", n)
	}
}

// Offsets come from the fastest of the last round trips.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	var c clock
	if c.offset() != 0 {
		t.Error("an offset without a round trip")
	}
	r := rand.New(rand.NewPCG(1, 1))
	const ahead = int64(3 * time.Second)
	for i := range 3 * window {
		sent := int64(i) * int64(time.Second)
		there, back := int64(100+r.IntN(1_000_000)), int64(100+r.IntN(1_000_000))
		if i%window == 7 {
			there, back = 50, 52
		}
		c.add(sent, sent+there+ahead, sent+there+back)
		if off := int64(c.offset()) - ahead; i%window >= 7 && (off < -2 || off > 2) {
			t.Fatalf("trip %d: off by %d ns", i, off)
		}
	}
}

// Statuses and clocks are known at the beginning and follow.
func TestStatusesAreKnown(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		worlds := n.world(t, 3, busy)
		time.Sleep(3 * time.Second)
		for _, w := range worlds {
			if got := w.Statuses(); !slices.Equal(got, []string{"device 0: B1", "device 1: B1", "device 2: B1"}) {
				t.Errorf("rank %d: %q", w.Rank(), got)
			}
			if w.Offset() != 0 { // it is one clock, and pipes take no time
				t.Errorf("rank %d: offset %v", w.Rank(), w.Offset())
			}
		}
		each(worlds, func(w *World) { _ = w.Leave(t.Context()) })
	})
}

func BenchmarkAllGather(b *testing.B) {
	for _, bytes := range []int{0, 64 << 10} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			worlds := together(b, 4, nil)
			data := make([]byte, bytes)
			b.ResetTimer()
			each(worlds, func(w *World) {
				for range b.N {
					if _, err := w.AllGather(b.Context(), data); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
