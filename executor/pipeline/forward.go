package pipeline

import (
	"context"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
)

// forward issues F: the minibatch takes a slab and a version of the weights, its input is there or arrives.
func (d taskCompiler) forward(ctx context.Context, t *localStage, v order.Instance) error {
	f, err := d.beginForward(ctx, t, v)
	if err != nil {
		return err
	}
	if err := d.task(ctx, t, v, f); err != nil {
		return err
	}
	d.endForward(t, f)
	return nil
}

// beginForward does what F does before its ops.
func (d taskCompiler) beginForward(ctx context.Context, t *localStage, v order.Instance) (*inFlight, error) {
	f := d.enter(t, v.Minibatch)
	sb := &t.slabs[f.slab]
	if err := d.watch.op(d.compute, stamp{Instance: v, op: TheBatch}, false, func() error { return d.upload(t, sb, v) }); err != nil {
		return nil, err
	}
	if err := d.entry(ctx, t, f, sb); err != nil {
		return nil, err
	}
	if err := d.skips(ctx, t, f); err != nil {
		return nil, err
	}
	slot, err := t.stash.Enter(v.Minibatch)
	if err != nil {
		return nil, err
	}
	at := frame{slot: slot}
	if err := turnsOf(d.compiler).awaitWeights(ctx, t, v, &at); err != nil {
		return nil, err
	}
	f.at = frame{input: f.entry, scalars: sb.scalars, labels: sb.labels, slot: at.slot, row: t.deferred.row(v.Minibatch)}
	if t.opsOf(v.Minibatch).Out.In == stageops.InSentOutput {
		f.at.output = t.outputs.take(d.compute, v.Minibatch)
	}
	return f, nil
}

// endForward does what F does behind its ops.
func (d taskCompiler) endForward(t *localStage, f *inFlight) {
	sb := &t.slabs[f.slab]
	if t.stage == len(d.stages)-1 {
		d.report(t, f)
		return
	}
	t.outputs.seal(d.compute, f.minibatch)
	d.compute.Record(sb.forward)
}

// enter books a minibatch into a stage.
func (d taskCompiler) enter(t *localStage, m int) *inFlight {
	if len(d.unused) == 0 {
		d.unused = append(d.unused, new(inFlight))
	}
	f := d.unused[len(d.unused)-1]
	d.unused = d.unused[:len(d.unused)-1]
	*f = inFlight{minibatch: m, lent: f.lent[:0], block: none, backBlock: none, returned: none, slab: m % d.lay.order.Repeats, skips: f.skips[:0], deltas: f.deltas[:0]}
	for range t.portalOutputs {
		f.deltas = append(f.deltas, skipTensor{block: none, returned: none})
	}
	switch {
	case t.ring != nil:
		f.slab = t.ring.slot(m)
	case !d.lay.order.Plan.IsFlush():
		f.slab = pop(&t.free)
	}
	t.inFlight = append(t.inFlight, f)
	return f
}

// leave books it out.
func (d taskCompiler) leave(t *localStage, f *inFlight) {
	t.inFlight = slices.DeleteFunc(t.inFlight, func(g *inFlight) bool { return g == f })
	d.unused = append(d.unused, f)
	if d.lay.order.Plan.IsFlush() || t.ring != nil {
		return
	}
	d.vacate(loan{t, f.slab}, f.minibatch)
	for _, l := range f.lent {
		d.vacate(l, f.minibatch)
	}
}

// vacate frees a slab, unless the second half of another stage's backward on this device still reads an output there: then it is
// lent to that.
func (d taskCompiler) vacate(l loan, minibatch int) {
	for _, s := range d.lay.order.Readers[l.of.stage] {
		if d.stages[s] == nil {
			continue
		}
		if f := d.stages[s].find(minibatch); f != nil {
			f.lent = append(f.lent, l)
			return
		}
	}
	l.of.free = append(l.of.free, l.slab)
}

// entry finds the input of a stage: the images, the output of the stage before on this device, or what arrives.
func (d taskCompiler) entry(ctx context.Context, t *localStage, f *inFlight, sb *slab) (err error) {
	if t.stage == 0 {
		f.entry = sb.images[0]
		return nil
	}
	from := d.lay.order.On[t.stage-1][d.lay.order.Residue(f.minibatch)]
	if from == d.Number {
		before := d.stages[t.stage-1]
		f.entry = before.output(before.find(f.minibatch))
		return nil
	}
	f.from = t.in[from]
	f.block, f.entry, err = d.received(ctx, f.from, f.minibatch)
	return err
}
