package pipeline

import (
	"context"
	"fmt"
	"iter"
	"plimsoll/executor/internal/order"
	"slices"
)

// dryRun is a run of so many minibatches, of which nothing is issued: drivers record what they would do. One driver goes on at a time, until it
// needs what another one has not sent yet; when none can go on they wait for each other.
//
// This is exact, and no time is involved. The actions of a driver depend on the messages that others send it, and not on their
// times. Each channel between two drivers has one sender and one receiver, and a receiver waits for one thing at a time (a
// Kahn process network). So a run does the same in whatever order its drivers go on. Streams cannot be stuck then: a wait is
// issued behind the record that it waits for, whose driver has said so.
func (comp *compilation) dryRun(minibatches int) error {
	run := order.NewBound(minibatches)
	comp.reset()
	var parts []*dryRunDriver
	for _, d := range comp.drivers {
		p := &dryRunDriver{compiler: d.compiler}
		p.next, p.stop = iter.Pull(p.read(run))
		defer p.stop()
		parts = append(parts, p)
	}
	for len(parts) > 0 {
		moved := false
		for _, p := range parts {
			before := p.moves
			_, p.on = p.next()
			if p.err != nil {
				return p.err
			}
			moved = moved || !p.on || p.moves > before
		}
		if !moved {
			return fmt.Errorf("%w: its devices wait for each other:\n%s", order.ErrPlan, statuses(parts))
		}
		parts = slices.DeleteFunc(parts, func(p *dryRunDriver) bool { return !p.on })
	}
	return nil
}

// forgetDryRuns frees what the drivers have noted, and all that was made for devices of other processes: the tables are proved, and each
// process plays its own.
func (comp *compilation) forgetDryRuns() error {
	for _, d := range comp.drivers {
		d.compiler.Recording = nil
		if !comp.opt.World.has(d.Number) {
			d.table, d.compiler.unused, d.binder = nil, nil, newBinder(d.Number, d.binder.lib, d.binder.optimizer)
		}
		d.binder.uses = nil
	}
	return nil
}

// read runs a driver through a run. It yields where the driver waits.
func (p *dryRunDriver) read(run *order.Bound) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		p.pause = func() bool { return yield(struct{}{}) }
		p.moves++
		ctx := context.WithValue(context.Background(), dryRunKey{}, p)
		p.err = p.guarded(func() error { return p.record(ctx, run) })
	}
}
