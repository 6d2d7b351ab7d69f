package pipeline

import (
	"context"

	"plimsoll/executor/internal/cycle"
	"plimsoll/planner/pipeline"
)

// openBooks empties the books before a dry run.
func (d *compiler) openBooks(in *bound) {
	d.begin()
	d.bound = in
	for s, t := range d.stages {
		if t == nil {
			continue
		}
		t.rounds, t.shared, d.staging[s].uploads, d.staging[s].arrivals = 0, 0, 0, 0
		t.stash.forget()
		t.stash.begin(in)
		d.recording.slots[s] = append(d.recording.slots[s], 0)
		t.sums.begin()
		d.unused = append(d.unused, t.inFlight...)
		t.inFlight = t.inFlight[:0]
		t.free, t.freeReturns = numbers(t.free, len(t.slabs)), numbers(t.freeReturns, len(t.returns))
		t.outputs.begin()
		t.deltas.begin()
		t.beginPortals()
	}
}

// record notes all that the driver does in a run.
func (d *compiler) record(ctx context.Context, run *bound) error {
	rows, t := d.instructions(), d.ringed()
	d.recording = newRecording(d.binder, d.e.order.plan.IsFlush(), len(rows), len(d.stages))
	d.openBooks(run)
	d.recording.at = &d.recording.before
	if err := d.forget(); err != nil {
		return err
	}
	if c := d.cyclicStage(); c != nil {
		t = c
	}
	if err := d.ring().join(t); err != nil {
		return err
	}
	t = d.ringed()
	repeats := d.e.order.repeats
	least, most := shifts(rows)
	for j := floorDiv(-most, repeats); len(rows) > 0 && j*repeats+least < run.end(); j++ {
		for i, r := range rows {
			v := instance{r, j*repeats + r.shift}
			d.recording.row(i, floorDiv(v.minibatch, repeats))
			if err := d.recordTask(ctx, t, i, v, run); err != nil {
				return d.failed(v, err)
			}
		}
	}
	d.recording.close()
	return d.shareAll(ctx)
}

// recordTask notes what a task does for a minibatch.
func (d *compiler) recordTask(ctx context.Context, t *localStage, i int, v instance, run *bound) error {
	in := v.minibatch >= 0 && run.in(v.minibatch) && !d.e.order.idle(v.instruction, v.minibatch)
	if in {
		d.starts(v)
		defer d.progress.end()
	}
	if t != nil {
		return d.ring().step(ctx, t, &t.ring.steps[i], v, in)
	}
	if v.kind == pipeline.CycleOp {
		return d.cyclic().op(ctx, v, in)
	}
	if !in {
		return nil
	}
	return d.issueRecorded(ctx, v)
}

// shareAll notes what replicas tell each other behind a segment.
func (d *compiler) shareAll(ctx context.Context) error {
	for _, t := range d.stages {
		if t != nil && t.cyclic != nil {
			return d.joinBehind(t)
		}
		if t == nil || d.e.order.plan.IsFlush() || d.e.reducers[t.stage] == nil {
			continue
		}
		d.recording.at = &d.recording.behind[t.stage]
		_ = d.note(command{verb: doBegin})
		if err := d.sums().share(ctx, t); err != nil {
			return err
		}
		_ = d.note(command{verb: doEnd, on: d.compute})
	}
	return nil
}

// joinBehind notes that all streams wait for each other behind a segment of a cyclic plan: what is saved then is whole.
func (d *compiler) joinBehind(t *localStage) error {
	d.recording.at = &d.recording.behind[t.stage]
	_ = d.note(command{verb: doBegin})
	if err := d.ring().join(t); err != nil {
		return err
	}
	return d.note(command{verb: doEnd, on: d.compute})
}

// seen is how many periods of a recording are as in any longer run: those before the end of a run may differ.
func (e *Executor) seen(minibatches int) int {
	if e.order.plan.IsFlush() {
		return 1
	}
	return (minibatches-2*e.order.filling()-2*e.group)/e.order.repeats - 1
}

// fold makes the driver's table of its recording of so many periods; false: some row does not repeat itself in them. Errors: ErrPlan.
func (d *compiler) fold(periods int) (ok bool, err error) {
	r, t := d.recording, &table{repeats: d.e.order.repeats}
	flush := d.e.order.plan.IsFlush()
	for i, x := range d.instructions() {
		w, ok, err := r.foldRow(x, r.done[i][:min(periods, len(r.done[i]))], flush)
		if err != nil || !ok {
			return false, err
		}
		t.rows = append(t.rows, w)
	}
	t.before = r.list(r.before)
	for _, o := range r.opens {
		t.opens = append(t.opens, opening{o.instance, r.list(o.list)})
	}
	for s, x := range d.stages {
		if x == nil {
			continue
		}
		v := ending{stage: s, shares: r.list(r.behind[s]), group: x.stash.group, moves: make([][]*command, max(1, len(x.weights)))}
		for slot := 1; slot < len(x.weights); slot++ {
			v.moves[slot] = []*command{{verb: doBegin}, {verb: doCopy, on: d.compute, to: d.tableDevice, dst: x.weights[0], src: x.weights[slot]}, {verb: doEnd, on: d.compute}}
		}
		var ok bool
		if v.Cycle, ok = cycle.Fold(r.slots[s][:min(len(r.slots[s]), max(1, periods*t.repeats/v.group))]); flush {
			v.Cycle, ok = cycle.Always(0), true
		}
		if !ok {
			return false, nil
		}
		t.ends = append(t.ends, v)
	}
	d.table = t
	return true, nil
}

const (
	// firstDryRun and longestDryRun are how many minibatches drivers go through in dry runs: twice as many as long as some operand has not gone
	// round. An operand has some dozens of places at most, so that one which does not come back by then never does.
	firstDryRun, longestDryRun = 128, 1 << 14
	// firstUpdates and longestUpdates are likewise for how many updates: versions of the weights and sums of gradients go round in updates,
	// however many minibatches make one.
	firstUpdates, longestUpdates = 12, 1 << 6
)
