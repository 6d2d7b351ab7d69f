package pipeline

import (
	"context"
	"fmt"
	"slices"
)

// updates makes the updates of a stage that are due when a minibatch has ended there.
func (d *driver) updates(ctx context.Context, t *localStage, minibatch int) error {
	for t.stash.end(minibatch); t.stash.due(); {
		if err := d.watch.update(d.compute, t.stage, minibatch, func() error { return d.update(ctx, t) }); err != nil {
			return err
		}
	}
	return nil
}

// update makes the next version of the weights, by the gradients of all replicas. Where there is a guard it waits for those of the
// device's other stages: all are made behind the last one's.
func (d *driver) update(ctx context.Context, t *localStage) error {
	last := (t.stash.latest-t.stash.base+1)*t.stash.group - 1
	m := t.stash.update()
	if err := d.reduce(ctx, t, last, m.sum); err != nil {
		return err
	}
	if !t.divided() {
		if err := d.moveStatistics(ctx, t); err != nil {
			return err
		}
	}
	if d.guard == nil {
		return d.apply(t, m)
	}
	if err := d.measure(ctx, t, m); err != nil || len(d.guard.measured) < d.guard.stages {
		return err
	}
	return d.judge(ctx)
}

// apply updates the weights by a sum of gradients.
func (d *driver) apply(t *localStage, m move) error {
	if m.to >= len(t.weights) {
		return fmt.Errorf("%w: stage %d needs %d versions of its weights at one time, planned are %d", ErrPlan, t.stage, m.to+1, len(t.weights))
	}
	update, err := d.binder.update(t, m.to, m.sum)
	if err != nil {
		return err
	}
	if m.to != m.from {
		if err := d.compute.copy(t.weights[m.to], t.weights[m.from]); err != nil {
			return err
		}
	}
	around, err := d.binder.corrections(t)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return d.perform(around[0]) },
		func() error { return d.perform(update) },
		func() error { return d.perform(around[1]) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// settle moves the latest weights to slot 0, where every run begins.
func (d *driver) settle(t *localStage) error {
	from := slices.Index(t.stash.slots, t.stash.latest)
	if from > 0 {
		if err := d.compute.copy(t.weights[0], t.weights[from]); err != nil {
			return err
		}
	}
	t.stash.compact()
	return nil
}
