package pipeline

import (
	"context"

	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
)

// openBooks empties the books before a dry run.
func (d *compiler) openBooks(in *order.Bound) {
	d.begin(d.lay.opt.Past.Minibatches)
	d.bound = in
	for s, t := range d.stages {
		if t == nil {
			continue
		}
		t.rounds, t.shared, d.staging[s].uploads, d.staging[s].arrivals = 0, 0, 0, 0
		t.stash.Forget()
		t.stash.Begin(in)
		d.Recording.Slots[s] = append(d.Recording.Slots[s], 0)
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
func (d *compiler) record(ctx context.Context, run *order.Bound) error {
	rows, t := d.instructions(), d.ringed()
	d.Recording = table.NewRecording(d.binder, d.lay.order.Plan.IsFlush(), len(rows), len(d.stages))
	d.openBooks(run)
	d.Recording.At = &d.Recording.Before
	d.forget()
	if c := d.cyclicStage(); c != nil {
		t = c
	}
	d.ring().join(t)
	t = d.ringed()
	repeats := d.lay.order.Repeats
	least, most := order.Shifts(rows)
	for j := order.FloorDiv(-most, repeats); len(rows) > 0 && j*repeats+least < run.End(); j++ {
		for i, r := range rows {
			v := order.Instance{Instruction: r, Minibatch: j*repeats + r.Shift}
			d.Recording.Row(i, order.FloorDiv(v.Minibatch, repeats))
			if err := d.recordTask(ctx, t, i, v, run); err != nil {
				return d.failed(v, err)
			}
		}
	}
	d.Recording.Close()
	return d.shareAll(ctx)
}

// recordTask notes what a task does for a minibatch.
func (d *compiler) recordTask(ctx context.Context, t *localStage, i int, v order.Instance, run *order.Bound) error {
	in := v.Minibatch >= 0 && run.In(v.Minibatch) && !d.lay.order.Idle(v.Instruction, v.Minibatch)
	if in {
		d.starts(v)
		defer d.progress.end()
	}
	if t != nil {
		return d.ring().step(ctx, t, &t.ring.steps[i], v, in)
	}
	if v.Kind == pipeline.CycleOp {
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
			d.joinBehind(t)
			return nil
		}
		if t == nil || d.lay.order.Plan.IsFlush() || d.lay.reducers[t.stage] == nil {
			continue
		}
		d.Recording.At = &d.Recording.Behind[t.stage]
		d.note(table.Command{Verb: table.DoBegin})
		if err := d.sums().share(ctx, t); err != nil {
			return err
		}
		d.note(table.Command{Verb: table.DoEnd, On: d.compute})
	}
	return nil
}

// joinBehind notes that all streams wait for each other behind a segment of a cyclic plan: what is saved then is whole.
func (d *compiler) joinBehind(t *localStage) {
	d.Recording.At = &d.Recording.Behind[t.stage]
	d.note(table.Command{Verb: table.DoBegin})
	d.ring().join(t)
	d.note(table.Command{Verb: table.DoEnd, On: d.compute})
}

// seen is how many periods of a recording are as in any longer run: those before the end of a run may differ.
func (comp *compilation) seen(minibatches int) int {
	if comp.order.Plan.IsFlush() {
		return 1
	}
	return (minibatches-2*comp.order.Filling()-2*comp.group)/comp.order.Repeats - 1
}

// fold makes the driver's table of its recording of so many periods; false: some row does not repeat itself in them. Errors: ErrPlan.
func (d *compiler) fold(periods int) (ok bool, err error) {
	r, t := d.Recording, &table.Table{Repeats: d.lay.order.Repeats}
	flush := d.lay.order.Plan.IsFlush()
	for i, x := range d.instructions() {
		w, ok, err := r.FoldRow(x, r.Done[i][:min(periods, len(r.Done[i]))], flush)
		if err != nil || !ok {
			return false, err
		}
		t.Rows = append(t.Rows, w)
	}
	t.Before = r.List(r.Before)
	for _, o := range r.Opens {
		t.Opens = append(t.Opens, table.Opening{Instance: o.Instance, List: r.List(o.List)})
	}
	for s, x := range d.stages {
		if x == nil {
			continue
		}
		v := table.Ending{Stage: s, Shares: r.List(r.Behind[s]), Group: x.stash.Group, Moves: make([][]*table.Command, max(1, len(x.weights)))}
		for slot := 1; slot < len(x.weights) && !x.fetches; slot++ {
			v.Moves[slot] = []*table.Command{{Verb: table.DoBegin}, {Verb: table.DoCopy, On: d.compute, To: d.Device, Dst: x.weights[0], Src: x.weights[slot]}, {Verb: table.DoEnd, On: d.compute}}
		}
		var ok bool
		if v.Cycle, ok = cycle.Fold(r.Slots[s][:min(len(r.Slots[s]), max(1, periods*t.Repeats/v.Group))]); flush {
			v.Cycle, ok = cycle.Always(0), true
		}
		if !ok {
			return false, nil
		}
		t.Ends = append(t.Ends, v)
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
