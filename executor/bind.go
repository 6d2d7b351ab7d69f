package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Bound is a sequence without transfers whose blocks have places in an arena, and whose launches are prepared.
type Bound struct {
	Calls [][]runtime.Launch // by op of the sequence
	*packed
	work *Workload
}

// Bind gives the blocks of a sequence without transfers places in an arena of limit bytes, and prepares its launches. Errors: those of Layout
// and of the library.
func (w *Workload) Bind(seq schedule.Sequence, limit int64, lib kernels.Library) (*Bound, error) {
	p, err := w.pack(seq, limit, Sim{})
	if err != nil {
		return nil, err
	}
	b := &Bound{packed: p, work: w}
	for i, op := range seq {
		var calls []runtime.Launch
		for _, step := range programOf(w.Layers[op.Layer-1], op.Kind).Steps {
			call := step.Call
			call.UpdateStats = call.Train && p.layout.first[i]
			launch, err := lib.Prepare(call, step.Refs.Operands(w.Static.Scalars, func(ref models.Ref) runtime.Span { return b.resolve(i, op.Layer, ref) }))
			if err != nil {
				return nil, fmt.Errorf("layer %s, op %s: %w", w.Model.Layers[op.Layer-1].Name, step.Name, err)
			}
			calls = append(calls, launch)
		}
		b.Calls = append(b.Calls, calls)
	}
	return b, nil
}

// Input returns where a_0 lies, that of branch k.
func (b *Bound) Input(k int) runtime.Span { return b.span(k) }

// programOf returns the program of an op of a training step.
func programOf(p *models.Programs, k schedule.Kind) *models.Program {
	switch k {
	case schedule.Backward:
		return &p.Back
	case schedule.ForwardAll:
		return &p.Save
	}
	return &p.Forget
}

// resolve returns the arena span of a block of op i, or of a piece of it.
func (b *Bound) resolve(i, layer int, ref models.Ref) runtime.Span {
	blocks, st := b.layout.ops[i], &b.work.Static.Layers[layer-1]
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
		return st.Grads.Part(ref.Offset, ref.Bytes)
	case models.Labels:
		return b.work.Static.Labels.Part(ref.Offset, ref.Bytes)
	case models.Scalars:
		return b.work.Static.Scalars.Part(ref.Offset, ref.Bytes)
	}
	if block == none {
		panic(fmt.Sprintf("BUG: op %d of layer %d refers to block %d, which it does not have", i, layer, ref.Block))
	}
	return b.span(block).Part(ref.Offset, ref.Bytes)
}
