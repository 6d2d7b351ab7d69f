package executor

import (
	"fmt"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// bound is a sequence whose blocks have places. Where it was prepared, the launches of op i are calls[start[i]:start[i+1]].
type bound struct {
	layout *layout
	base   int64 // where the blocks begin in the arena
	peak   int64 // the most that is alive at one op, static memory included
	extent int64 // the end of the highest block, static memory included
	copies int64 // bytes of the copies in host memory
	calls  []runtime.Launch
	start  []int
}

// pack lays a sequence's blocks out above the static memory, and its copies in host memory.
func (w *Workload) pack(seq schedule.Sequence, limit int64, sim Sim) (*bound, error) {
	t, err := w.record(seq, sim, limit)
	if err != nil {
		return nil, err
	}
	return newBound(t, w.StaticBytes()), nil
}

// newBound lays out the blocks of a layout from base on.
func newBound(t *layout, base int64) *bound {
	return &bound{
		layout: t, base: base, copies: pack.Pack(t.host, len(t.seq)),
		peak: base + pack.Live(t.items, len(t.seq)), extent: base + pack.Pack(t.items, len(t.seq)),
	}
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
	return Layout{Peak: b.peak, Extent: b.extent, Copies: b.copies}, nil
}

// Extent returns the arena that a sequence without transfers needs, with fragmentation, when the limit is that large.
func (w *Workload) Extent(seq schedule.Sequence) (int64, error) {
	l, err := w.Layout(seq, schedule.NoLimit, Sim{})
	return l.Extent, err
}

// programOf returns what an op of a training step runs.
func programOf(p *models.Programs, k schedule.Kind) *models.Program {
	switch k {
	case schedule.Backward:
		return &p.Back
	case schedule.ForwardAll:
		return &p.Save
	}
	return &p.Forget
}

// prepare prepares every launch of a sequence without transfers.
func (w *Workload) prepare(b *bound, lib kernels.Library) error {
	for i, op := range b.layout.seq {
		b.start = append(b.start, len(b.calls))
		for _, step := range programOf(w.Layers[op.Layer-1], op.Kind).Steps {
			call := step.Call
			call.UpdateStats = call.Train && b.layout.first[i]
			launch, err := lib.Prepare(call, w.operands(b, i, op.Layer, step.Refs))
			if err != nil {
				return fmt.Errorf("layer %s, op %s: %w", w.Model.Layers[op.Layer-1].Name, step.Name, err)
			}
			b.calls = append(b.calls, launch)
		}
	}
	b.start = append(b.start, len(b.calls))
	return nil
}

// operands resolves the blocks of a step to arena spans.
func (w *Workload) operands(b *bound, i, layer int, r models.Refs) kernels.Operands {
	at := func(ref models.Ref) runtime.Span { return w.resolve(b, i, layer, ref) }
	all := func(refs []models.Ref) []runtime.Span {
		spans := make([]runtime.Span, len(refs))
		for k, ref := range refs {
			spans[k] = at(ref)
		}
		return spans
	}
	return kernels.Operands{
		X: all(r.X), Y: at(r.Y), DX: all(r.DX), DY: at(r.DY), Saved: all(r.Saved),
		Params: all(r.Params), DParams: all(r.DParams), Workspace: at(r.Workspace),
		Scalars: w.static.scalars,
	}
}

func (w *Workload) resolve(b *bound, i, layer int, ref models.Ref) runtime.Span {
	if ref.Bytes == 0 {
		return runtime.Span{}
	}
	blocks, st := b.layout.ops[i], &w.static.layers[layer-1]
	block := none
	switch ref.Block {
	case models.Input:
		block = blocks.end(ref.Branch).input
	case models.Output:
		block = blocks.output
	case models.GradOutput:
		block = blocks.gradOutput
	case models.GradInput:
		block = blocks.end(ref.Branch).gradInput
	case models.Scratch:
		block = blocks.scratch
	case models.Params:
		return st.operand(ref)
	case models.Grads:
		return st.grads.Part(ref.Offset, ref.Bytes)
	case models.Labels:
		return w.static.labels.Part(ref.Offset, ref.Bytes)
	case models.Scalars:
		return w.static.scalars.Part(ref.Offset, ref.Bytes)
	}
	if block == none {
		panic(fmt.Sprintf("BUG: op %d of layer %d refers to block %d, which it does not have", i, layer, ref.Block))
	}
	return b.span(block).Part(ref.Offset, ref.Bytes)
}

// span returns where an item of the layout lies.
func (b *bound) span(block int) runtime.Span {
	it := &b.layout.items[block]
	return runtime.Span{Offset: b.base + it.Offset, Bytes: it.Bytes}
}
