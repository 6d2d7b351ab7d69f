package executor

import (
	"plimsoll/executor/internal/pack"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// packed is a sequence whose blocks have places.
type packed struct {
	Layout
	layout *layout
	base   int64 // where the blocks begin in the arena
}

// record verifies a sequence and lays out the life of its blocks in an arena of limit bytes.
func (w *Workload) record(seq schedule.Sequence, sim Sim, limit int64) (*layout, error) {
	if err := schedule.Verify(w.Chain(), seq); err != nil {
		return nil, err
	}
	t, err := w.Timeline(seq, sim, limit-w.StaticBytes())
	if err != nil {
		return nil, err
	}
	return record(w.Model.Wiring(), w.Layers, w.InputBytes(), seq, t)
}

// pack lays a sequence's blocks out above the static memory, and its copies in host memory.
func (w *Workload) pack(seq schedule.Sequence, limit int64, sim Sim) (*packed, error) {
	t, err := w.record(seq, sim, limit)
	if err != nil {
		return nil, err
	}
	return newPacked(t, w.StaticBytes()), nil
}

// newPacked lays out the blocks of a layout from base on.
func newPacked(t *layout, base int64) *packed {
	n := len(t.seq)
	return &packed{Layout{base + pack.Live(t.items, n), base + pack.Pack(t.items, n), pack.Pack(t.host, n)}, t, base}
}

// Layout says where a sequence's memory would end.
type Layout struct {
	Peak   int64 // the most that is alive at one op, static memory included
	Extent int64 // the arena that it needs, with fragmentation
	Copies int64 // page-locked host memory for what is offloaded
}

// Layout lays a sequence out as in an arena of limit bytes, or without transfers in any arena. Errors: those of
// schedule.Simulate, *UnusedPrefetchError.
func (w *Workload) Layout(seq schedule.Sequence, limit int64, sim Sim) (Layout, error) {
	b, err := w.pack(seq, limit, sim)
	if err != nil {
		return Layout{}, err
	}
	return b.Layout, nil
}

// Extent returns the arena that a sequence without transfers needs, with fragmentation, when the limit is that large.
func (w *Workload) Extent(seq schedule.Sequence) (int64, error) {
	l, err := w.Layout(seq, schedule.NoLimit, Sim{})
	return l.Extent, err
}

// PeakBytes returns the bytes that the arena must hold for a sequence without transfers: the static memory and the
// most that is alive at one op.
func (w *Workload) PeakBytes(seq schedule.Sequence) (int64, error) {
	t, err := w.record(seq, Sim{}, schedule.NoLimit)
	if err != nil {
		return 0, err
	}
	return w.StaticBytes() + pack.Live(t.items, len(seq)), nil
}

// span returns where an item of the layout lies.
func (p *packed) span(block int) runtime.Span {
	it := &p.layout.items[block]
	return runtime.Span{Offset: p.base + it.Offset, Bytes: it.Bytes}
}
