package pipeline

import (
	"context"
	"fmt"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// task issues a task.
func (d taskCompiler) task(ctx context.Context, t *localStage, v order.Instance, f *inFlight) error {
	d.watch.start(d.compute)
	if d.paced != nil {
		d.pause(t, v.Kind, f)
	} else if err := d.ops(ctx, t, v.Kind, f); err != nil {
		return err
	}
	d.watch.end(d.compute)
	return nil
}

// ops issues the ops of a task.
func (d taskCompiler) ops(ctx context.Context, t *localStage, kind pipeline.Kind, f *inFlight) error {
	list, adds, closes := t.opsOf(f.minibatch).Tasks[kind], t.adds(kind, f), d.closes(t, kind, f)
	for i := range list {
		if err := d.one(ctx, t, kind, &list[i], f); err != nil {
			return err
		}
		if !adds {
			continue
		}
		d.made(t, f, list[i].Closes, closes)
	}
	return nil
}

// one issues an op of a task, or a transfer.
func (d taskCompiler) one(ctx context.Context, t *localStage, kind pipeline.Kind, o *stageops.Op, f *inFlight) error {
	q := d.queueOf(o)
	issue := func() error { return d.op(ctx, t, o, f) }
	if o.Program == nil {
		issue = func() error {
			d.carry(t, o, f)
			return nil
		}
	}
	waits := d.waitFor(q, t, o, f)
	if err := d.watch.op(q, stamp{Instance: order.Instance{Instruction: order.Instruction{Kind: kind, Stage: t.stage, To: none}, Minibatch: f.minibatch}, op: o.Number}, waits, issue); err != nil {
		return err
	}
	d.tellEnd(q, t, o, f)
	d.noteAudit()
	d.noteObservation(t, o, f)
	return nil
}

// pause issues what stands for a task in simulated time.
func (d taskCompiler) pause(t *localStage, kind pipeline.Kind, f *inFlight) {
	if !d.closes(t, kind, f) {
		d.compute.Launch(table.Prepared{Launch: d.paced[order.TaskKey{Kind: kind, Stage: t.stage, Residue: 0}]})
		return
	}
	for _, part := range t.sums.pauses(fmt.Sprintf("%v%d", kind, t.stage), d.lay.opt.Pace(kind, t.stage)) {
		d.compute.Launch(table.Prepared{Launch: part.Launch})
		d.made(t, f, part.buckets, true)
	}
}

// op issues an op of a minibatch's task.
func (d taskCompiler) op(ctx context.Context, t *localStage, o *stageops.Op, f *inFlight) error {
	sb, at := &t.slabs[f.slab], &f.at
	if o.GradOutput.In == stageops.InOutputGradient {
		if err := d.delta(ctx, t, f); err != nil {
			return err
		}
		at.gradOutput = f.delta
	}
	fr := frame{weights: at.weights, tied: at.tied, gradients: at.gradients, wide: at.wide, tiedGradients: at.tiedGradients, scalars: at.scalars, labels: at.labels, slot: at.slot, sum: at.sum, add: at.add && o.Gradients, row: at.row}
	for _, b := range []struct {
		to   *runtime.Span
		from *stageops.Block
	}{{&fr.input, &o.Input}, {&fr.output, &o.Output}, {&fr.gradOutput, &o.GradOutput}, {&fr.gradInput, &o.GradInput}, {&fr.scratch, &o.Scratch}, {&fr.kept, &o.Kept}} {
		*b.to = span(b.from, sb, at)
	}
	for i := range o.Joined {
		fr.skips = append(fr.skips, skipTensor{span: span(&o.Joined[i].Input, sb, at), target: span(&o.Joined[i].GradInput, sb, at)})
	}
	d.bindPortals(t, o, f, &fr)
	launches, err := d.binder.op(t, o, &fr)
	if err != nil {
		return err
	}
	d.launch(launches)
	return nil
}

// delta finds δ of the stage's output, in a block of this device or in what arrives, when the first op reads it. The
// recomputation of a backward need not wait for it.
func (d taskCompiler) delta(ctx context.Context, t *localStage, f *inFlight) (err error) {
	if f.delta.Bytes > 0 {
		return nil
	}
	if err := d.deltas(ctx, t, f); err != nil {
		return err
	}
	from := d.lay.order.On[t.stage+1][d.lay.order.Residue(f.minibatch)]
	if from == d.Number {
		f.delta = t.returns[f.returned]
		return nil
	}
	f.back = t.back[from]
	f.backBlock, f.delta, err = d.received(ctx, f.back, f.minibatch)
	return err
}
