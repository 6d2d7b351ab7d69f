package executor

import (
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// bound is a sequence whose every launch is prepared: op i of the sequence is calls[start[i]:start[i+1]].
type bound struct {
	layout  *layout
	base    int64 // where the blocks begin in the arena
	peak    int64 // the most that is alive at one op, static memory included
	extent  int64 // the end of the highest block, static memory included
	copies  int64 // bytes of the copies in the host slab
	slab    int64 // where they begin
	stream  []int // the stream of every op
	calls   []prepared
	adding  []prepared // the same, with gradients that are added to those of the step's earlier parts; nil where a step is one
	adds    bool
	start   []int
	take    []command      // what it begins with where batches are staged
	fetches *weightFetches // of the weights, where they are offloaded
}

// prepared is a launch with what it reads and writes, for the order check.
type prepared struct {
	launch runtime.Launch
	use
}

// use is what one launch touches.
type use struct {
	name     text
	accesses []hazard.Access
}

// program chooses what an op of a sequence runs.
type program func(*models.Programs, schedule.Kind) *models.Program

// trainingProgram is the program of a training step's ops.
func trainingProgram(p *models.Programs, k schedule.Kind) *models.Program {
	switch k {
	case schedule.Backward:
		return &p.Back
	case schedule.ForwardAll:
		return &p.Save
	}
	return &p.Forget
}

// layOut lays a sequence's blocks out above the static memory, and its copies in host memory. Errors: *LimitError,
// *LayoutError, those of Layout.
func (w *Workload) layOut(seq schedule.Sequence, limit int64, sim Sim) (*bound, error) {
	if w.StaticBytes() > limit {
		return nil, &LimitError{Limit: limit, Static: w.StaticBytes()}
	}
	b, err := w.pack(seq, limit, sim)
	if err != nil {
		return nil, err
	}
	if b.extent > limit {
		return nil, &LayoutError{Limit: limit, Peak: b.peak, Extent: b.extent}
	}
	return b, nil
}

// pack is layOut without a limit for the extent.
func (w *Workload) pack(seq schedule.Sequence, limit int64, sim Sim) (*bound, error) {
	t, err := w.record(seq, sim, limit)
	if err != nil {
		return nil, err
	}
	b := newBound(t, w.StaticBytes())
	b.stream = streamsOf(seq, sim.Limits.Link.Duplex)
	return b, nil
}

// newBound lays out the blocks of a layout from base on.
func newBound(t *layout, base int64) *bound {
	return &bound{
		layout: t, base: base, stream: make([]int, len(t.seq)),
		peak: base + pack.Live(t.items, len(t.seq)), extent: base + pack.Pack(t.items, len(t.seq)), copies: pack.Pack(t.host, len(t.seq)),
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

// prepare prepares every launch of a laid out sequence.
func (w *Workload) prepare(b *bound, lib kernels.Library, choose program) error {
	b.fetches = w.weightFetches(b.layout.seq)
	for i, op := range b.layout.seq {
		b.start = append(b.start, len(b.calls))
		if op.Kind.Transfer() {
			continue
		}
		p := choose(w.Layers[op.Layer-1], op.Kind)
		for _, step := range p.Steps {
			if err := w.prepareStep(b, lib, i, step); err != nil {
				return fmt.Errorf("layer %s, op %s: %w", w.Model.Layers[op.Layer-1].Name, step.Name, err)
			}
		}
	}
	b.start = append(b.start, len(b.calls))
	return w.prepareTake(b, lib)
}

// launches returns those of op i.
func (b *bound) launches(i int) (all []runtime.Launch) {
	for _, c := range b.calls[b.start[i]:b.start[i+1]] {
		all = append(all, c.launch)
	}
	return all
}

func (w *Workload) prepareStep(b *bound, lib kernels.Library, i int, step models.Step) error {
	op, call := b.layout.seq[i], step.Call
	call.UpdateStats = call.Train && b.layout.first[i]
	o := w.operands(b, i, op.Layer, step.Refs)
	prepare := func(call kernels.Call) (prepared, error) {
		launch, err := lib.Prepare(call, o)
		return prepared{launch, useOf(fmt.Sprintf("%v %s", op, step.Name), call.Uses(o, o.Workspace.Bytes))}, err
	}
	once, err := prepare(call)
	if err != nil {
		return err
	}
	b.calls = append(b.calls, once)
	if !b.adds {
		return nil
	}
	if call.AddParams = step.Accumulating().AddParams; call.AddParams {
		if once, err = prepare(call); err != nil {
			return err
		}
	}
	b.adding = append(b.adding, once)
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
		return w.static.operand(layer, b.fetches.slot[i], ref)
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

// copySpan returns where a copy lies in the host slab.
func (b *bound) copySpan(block int) runtime.Span {
	it := &b.layout.host[block]
	return runtime.Span{Space: runtime.Host, Offset: b.slab + it.Offset, Bytes: it.Bytes}
}

// transfer returns what transfer p copies.
func (b *bound) transfer(p int) (dst, src runtime.Span) {
	blocks := &b.layout.ops[p]
	if b.layout.seq[p].Kind == schedule.Offload {
		return b.copySpan(blocks.host), b.span(blocks.input)
	}
	return b.span(blocks.output), b.copySpan(blocks.host)
}

// useOf names what a launch touches.
func useOf(name string, uses []kernels.Use) use { return use{text(name), hazard.Uses(0, uses)} }
