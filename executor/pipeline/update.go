package pipeline

import (
	"context"
	"fmt"

	"plimsoll/executor/internal/order"
)

// updates makes the updates of a stage that are due when a minibatch has ended there. Of those behind its own all minibatches have
// overtaken it: where they are not in the run, their updates are left out.
func (d *compiler) updates(ctx context.Context, t *localStage, minibatch int) error {
	defer func() { d.Recording.Ahead = 0 }()
	for t.stash.End(minibatch); t.stash.Due(); {
		d.Recording.Ahead = t.stash.DueLast() - minibatch
		if d.Recording.Ahead < t.stash.Group {
			d.Recording.Ahead = 0
		}
		if err := d.watch.update(d.compute, func() error { return d.update(ctx, t) }); err != nil {
			return err
		}
	}
	return nil
}

// update makes the next version of the weights, by the gradients of all replicas. Where there is a guard it waits for those of the
// device's other stages. Behind the last one's, gradients of weights that stages share come together, and all are judged.
func (d *compiler) update(ctx context.Context, t *localStage) error {
	last := t.stash.DueLast()
	m := t.stash.Update()
	d.Recording.Slots[t.stage] = append(d.Recording.Slots[t.stage], int32(m.To))
	if err := d.sums().reduce(ctx, t, last, m.Sum); err != nil {
		return err
	}
	if !t.shards() {
		if err := d.moveStatistics(ctx, t); err != nil {
			return err
		}
	}
	if d.guard == nil {
		if err := tiesOf(d).addTied(ctx, t, m.Sum); err != nil {
			return err
		}
		d.sendGradients(t, m)
		err := d.apply(t, m)
		d.awaitHost(t)
		return err
	}
	d.guard.due = append(d.guard.due, dueUpdate{t, m})
	if err := tiesOf(d).sendTied(ctx, t, m.Sum); err != nil || len(d.guard.due) < d.guard.stages {
		return err
	}
	return d.judge(ctx)
}

// reduce makes the gradients in a slot of a stage the sum of those of all replicas.
func (d sumCompiler) reduce(ctx context.Context, t *localStage, minibatch, slot int) error {
	switch {
	case d.lay.reducers[t.stage] == nil:
		return nil
	case t.sums != nil:
		return d.collect(ctx, t, minibatch, slot)
	case d.lay.collectives[t.stage] != nil:
		return d.sumAll(ctx, t, slot)
	}
	return d.sumAlong(ctx, t, slot)
}

// newVersion copies the weights to the slot of their next version. It does so also when the update is left out: who is to see the next
// version sees the same weights there.
func (d *compiler) newVersion(t *localStage, m order.Move) {
	ahead := d.Recording.Ahead
	defer func() { d.Recording.Ahead = ahead }()
	d.Recording.Ahead = 0
	d.compute.Copy(t.weights[m.To], t.weights[m.From])
}

// apply updates the weights by a sum of gradients.
func (d *compiler) apply(t *localStage, m order.Move) error {
	if t.host != nil {
		return d.applyOnHost(t, m)
	}
	if m.To >= len(t.weights) {
		return fmt.Errorf("%w: stage %d needs %d versions of its weights at one time, planned are %d", order.ErrPlan, t.stage, m.To+1, len(t.weights))
	}
	update, err := d.binder.update(t, m.To, m.Sum)
	if err != nil {
		return err
	}
	if m.To != m.From {
		d.newVersion(t, m)
	}
	around, err := d.binder.corrections(t)
	if err != nil {
		return err
	}
	d.perform(around[0])
	d.perform(update)
	d.perform(around[1])
	return nil
}

// judge judges the gradients of all stages, as soon as what others have measured is there, and lets the updates of the device's stages
// follow.
func (d *compiler) judge(ctx context.Context) error {
	g := d.guard
	for _, x := range g.due {
		if err := tiesOf(d).addTied(ctx, x.t, x.move.Sum); err != nil {
			return err
		}
		if err := d.measure(ctx, x.t, x.move); err != nil {
			return err
		}
	}
	for _, l := range g.arrivals {
		_, span, err := d.received(ctx, l.channel, g.steps)
		if err != nil {
			return err
		}
		d.putTogether(l.places, span)
	}
	for _, x := range g.due {
		launches, err := d.binder.guard(g, x.t, x.move.Sum, d.lay.opt.MaxNorm)
		if err != nil {
			return err
		}
		d.compute.Launch(launches[1])
	}
	for _, l := range g.arrivals {
		d.release(l.channel, 0)
	}
	d.returnNorm()
	for _, x := range g.due {
		d.sendGradients(x.t, x.move)
	}
	for _, x := range g.due {
		if err := d.apply(x.t, x.move); err != nil {
			return err
		}
	}
	for _, x := range g.due {
		d.awaitHost(x.t)
	}
	if err := tiesOf(d).renewCopies(ctx); err != nil {
		return err
	}
	g.due = g.due[:0]
	g.steps++
	return nil
}
