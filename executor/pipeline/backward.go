package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
)

// backward issues B, or W: the minibatch gives back what it held when it was its last task.
func (d taskCompiler) backward(ctx context.Context, t *localStage, v order.Instance) error {
	f, err := d.beginBackward(ctx, t, v)
	if err != nil {
		return err
	}
	if err := d.task(ctx, t, v, f); err != nil {
		return err
	}
	d.endBackward(t, v, f)
	return nil
}

// beginBackward does what B, or W, does before its ops.
func (d taskCompiler) beginBackward(ctx context.Context, t *localStage, v order.Instance) (*inFlight, error) {
	f := t.find(v.Minibatch)
	sb := &t.slabs[f.slab]
	at := frame{input: f.entry, scalars: sb.scalars, labels: sb.labels}
	var err error
	if at.slot, err = t.stash.See(v.Minibatch); err != nil {
		return nil, err
	}
	if err := turnsOf(d.compiler).awaitWeights(ctx, t, v, &at); err != nil {
		return nil, err
	}
	if err := d.sum(t, v, sb, &at); err != nil {
		return nil, err
	}
	if t.discrepancy.corrects() {
		at.slot = t.estimate()
	}
	if v.Kind == pipeline.B {
		if d.waitsAtOnce(t, f) {
			if err := d.delta(ctx, t, f); err != nil {
				return nil, err
			}
			at.gradOutput = f.delta
		}
		d.target(t, f, &at)
	}
	f.at = at
	return f, nil
}

// endBackward does what B, or W, does behind its ops.
func (d taskCompiler) endBackward(t *localStage, v order.Instance, f *inFlight) {
	if v.Kind == pipeline.B {
		t.deltas.seal(d.compute, f.minibatch)
		d.leaveByPortals(t, f)
	}
	if d.lay.order.Last(v.Instruction) || v.Kind == pipeline.B && !d.lay.order.Late[t.stage] {
		d.spent(t, f)
	}
	if !d.lay.order.Last(v.Instruction) {
		return
	}
	d.end(t, f)
}

// sum finds where the gradients of a task are summed. Without a flush the first task of an update brings its scalars.
func (d taskCompiler) sum(t *localStage, v order.Instance, sb *slab, at *frame) error {
	if !t.opsOf(v.Minibatch).Writes(v.Kind) {
		return nil
	}
	slot, fresh := t.stash.Sum(v.Minibatch / t.stash.Group)
	if slot >= len(t.grads) {
		return fmt.Errorf("%w: stage %d needs %d sums of gradients at one time, planned are %d", order.ErrPlan, t.stage, slot+1, len(t.grads))
	}
	if at.sum, at.add = slot, t.stash.Sums[slot].Adds(v.Kind); d.lay.order.Sums[t.stage].Passes() {
		at.sum, at.add = t.sums.Round(v.Minibatch, d.lay.order.Repeats), false
		turnsOf(d.compiler).awaitBuffer(t, v)
	}
	if d.lay.order.Plan.IsFlush() {
		return nil
	}
	d.compute.CopyIf(fresh, t.scalars[slot], sb.scalars.Part(kernels.ScalarsBytes, kernels.ScalarsBytes))
	return nil
}

// waitsAtOnce reports whether a backward begins with an op that reads δ of the stage's output. In simulated time it waits at
// once, too.
func (d taskCompiler) waitsAtOnce(t *localStage, f *inFlight) bool {
	if d.paced != nil {
		return t.stage < len(d.stages)-1
	}
	list := t.opsOf(f.minibatch).Tasks[pipeline.B]
	i := slices.IndexFunc(list, func(o stageops.Op) bool { return o.Program != nil })
	return list[i].GradOutput.In == stageops.InOutputGradient
}

// target finds where δ of the stage's input goes: to the stage before on this device, or to the send buffer.
func (d taskCompiler) target(t *localStage, f *inFlight, at *frame) {
	if t.stage == 0 {
		return
	}
	d.targets(t, f)
	if d.lay.order.On[t.stage-1][d.lay.order.Residue(f.minibatch)] == d.Number {
		before := d.stages[t.stage-1]
		g := before.find(f.minibatch)
		g.returned = pop(&before.freeReturns)
		at.gradInput = before.returns[g.returned]
		return
	}
	at.gradInput = t.deltas.take(d.compute, f.minibatch)
}

// spent gives the block of δ of the output back.
func (d taskCompiler) spent(t *localStage, f *inFlight) {
	d.spentSkips(t, f)
	if f.returned != none {
		t.freeReturns = append(t.freeReturns, f.returned)
		f.returned = none
	}
	if f.back == nil {
		return
	}
	back := f.back
	f.back = nil
	d.release(back, f.backBlock)
}

// end gives back what a minibatch held.
func (d taskCompiler) end(t *localStage, f *inFlight) {
	d.releaseSkips(f.skips)
	if f.from != nil {
		d.release(f.from, f.block)
	}
	t.stash.Leave(f.minibatch)
	d.leave(t, f)
}
