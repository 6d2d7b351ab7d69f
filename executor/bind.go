package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// bound is a sequence whose every launch is prepared: op i of the sequence is launches[start[i]:start[i+1]].
type bound struct {
	tape     *tape
	base     int64 // where the blocks begin in the arena
	peak     int64 // the most that is alive at one op, static memory included
	extent   int64 // the end of the highest block, static memory included
	launches []runtime.Launch
	uses     []use // what each launch reads and writes, for the order check
	start    []int
}

// use is what one launch touches.
type use struct {
	name          string
	reads, writes []runtime.Span
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

// layout lays a sequence's blocks out above the static memory. Errors: *LimitError, *LayoutError.
func (w *Workload) layout(seq schedule.Sequence, limit int64) (*bound, error) {
	base := w.StaticBytes()
	if base > limit {
		return nil, &LimitError{Limit: limit, Static: base}
	}
	t, err := w.record(seq)
	if err != nil {
		return nil, err
	}
	b := &bound{tape: t, base: base}
	b.peak = base + livePeak(t.items, len(seq))
	b.extent = base + pack(t.items, len(seq))
	if b.extent > limit {
		return nil, &LayoutError{Limit: limit, Peak: b.peak, Extent: b.extent}
	}
	return b, nil
}

// Extent returns the arena that a sequence needs, with fragmentation, when the limit is that large.
func (w *Workload) Extent(seq schedule.Sequence) (int64, error) {
	t, err := w.record(seq)
	if err != nil {
		return 0, err
	}
	return w.StaticBytes() + pack(t.items, len(seq)), nil
}

// prepare prepares every launch of a laid out sequence.
func (w *Workload) prepare(b *bound, lib kernels.Library, choose program) error {
	for i, op := range b.tape.seq {
		b.start = append(b.start, len(b.launches))
		p := choose(w.Layers[op.Layer-1], op.Kind)
		for _, step := range p.Steps {
			if err := w.prepareStep(b, lib, i, step); err != nil {
				return fmt.Errorf("layer %s, op %s: %w", w.Model.Layers[op.Layer-1].Name, step.Name, err)
			}
		}
	}
	b.start = append(b.start, len(b.launches))
	return nil
}

func (w *Workload) prepareStep(b *bound, lib kernels.Library, i int, step models.Step) error {
	op, call := b.tape.seq[i], step.Call
	call.UpdateStats = call.Train && b.tape.first[i]
	o := w.operands(b, i, op.Layer, step.Refs)
	launch, err := lib.Prepare(call, o)
	if err != nil {
		return err
	}
	b.launches = append(b.launches, launch)
	b.uses = append(b.uses, useOf(fmt.Sprintf("%v %s", op, step.Name), call, o))
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
	blocks, st := b.tape.ops[i], &w.static.layers[layer-1]
	block := none
	switch ref.Block {
	case models.Input:
		block = blocks.input
	case models.Output:
		block = blocks.output
	case models.GradOutput:
		block = blocks.gradOutput
	case models.GradInput:
		block = blocks.gradInput
	case models.Scratch:
		block = blocks.scratch
	case models.Params:
		return part(st.params, ref.Offset, ref.Bytes)
	case models.Grads:
		return part(st.grads, ref.Offset, ref.Bytes)
	case models.Labels:
		return part(w.static.labels, ref.Offset, ref.Bytes)
	case models.Scalars:
		return part(w.static.scalars, ref.Offset, ref.Bytes)
	}
	if block == none {
		panic(fmt.Sprintf("BUG: op %d of layer %d refers to block %d, which it does not have", i, layer, ref.Block))
	}
	return part(b.span(block), ref.Offset, ref.Bytes)
}

// span returns where an item of the tape lies.
func (b *bound) span(block int) runtime.Span {
	it := &b.tape.items[block]
	return runtime.Span{Offset: b.base + it.offset, Bytes: it.bytes}
}

// useOf lists what a call reads and writes.
func useOf(name string, c kernels.Call, o kernels.Operands) use {
	u := use{name: name, writes: []runtime.Span{o.Workspace}}
	u.reads = append(append(u.reads, o.X...), o.Scalars)
	u.reads = append(u.reads, o.Params...)
	if c.Pass == kernels.Forward {
		u.writes = append(append(u.writes, o.Y), o.Saved...)
		if c.UpdateStats {
			u.writes = append(u.writes, buffers(c, o.Params)...)
		}
		return u
	}
	u.reads = append(append(u.reads, o.Y, o.DY), o.Saved...)
	u.writes = append(append(u.writes, o.DX...), o.DParams...)
	return u
}

// buffers returns the spans of the parameters that a forward itself moves.
func buffers(c kernels.Call, params []runtime.Span) []runtime.Span {
	var spans []runtime.Span
	for k, p := range c.Op.Params(c.In) {
		if !p.Trained && k < len(params) {
			spans = append(spans, params[k])
		}
	}
	return spans
}
