package pipeline

import (
	"slices"

	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// open makes the streams and events of a step with transfers.
func (l *stepLayout) open(d *driver) error {
	if !l.moves() {
		return nil
	}
	if err := openHost(d, l.duplex); err != nil {
		return err
	}
	var events []*runtime.Event
	for _, list := range append(slices.Clone(l.waits), l.final) {
		for _, q := range list {
			events = append(events, &l.ends[q])
		}
	}
	return makeEvents(d.Dev, events...)
}

// inTurn returns the number of an op within its turn.
func (l *stepLayout) inTurn(t *localStage, o *stageops.Op, f *inFlight) int {
	return l.op(t, f.minibatch, o.At) % (l.ops / l.turns)
}

// waitFor lets an op of a step with transfers wait for others, if it has to. A transfer with no compute op before it waits for what its
// task begins with.
func (d taskCompiler) waitFor(q table.Queue, t *localStage, o *stageops.Op, f *inFlight) (waits bool) {
	if !d.step.moves() {
		return false
	}
	for _, w := range d.step.waits[d.step.inTurn(t, o, f)] {
		q.Wait(d.step.ends[w])
		waits = true
	}
	if o.Program != nil || t.opsOf(f.minibatch).Before[o.At] != none {
		return waits
	}
	begun := t.slabs[f.slab].forward
	d.compute.Record(begun)
	q.Wait(begun)
	return true
}

// tellEnd puts an event behind an op of a step with transfers, if others wait for it. Behind the last op of a turn compute waits for all
// transfers: the next turn, or the update, begins behind them.
func (d taskCompiler) tellEnd(q table.Queue, t *localStage, o *stageops.Op, f *inFlight) {
	if !d.step.moves() {
		return
	}
	n := d.step.inTurn(t, o, f)
	if ev := d.step.ends[n]; ev != nil {
		q.Record(ev)
	}
	if n < len(d.step.ends)-1 {
		return
	}
	for _, last := range d.step.final {
		d.compute.Wait(d.step.ends[last])
	}
}

// carry issues a transfer of a step.
func (d taskCompiler) carry(t *localStage, o *stageops.Op, f *inFlight) {
	copyActivation(d.queueOf(o), o, &t.slabs[f.slab], &f.at)
}

// copyActivation notes the copy of an activation to the host, or back.
func copyActivation(q table.Queue, o *stageops.Op, sb *slab, at *frame) {
	copied := sb.hostCopies[o.Host]
	if o.Moves == schedule.Prefetch {
		q.Copy(span(&o.Output, sb, at).Part(0, copied.Bytes), copied)
		return
	}
	q.Copy(copied, span(&o.Input, sb, at).Part(0, copied.Bytes))
}

// queueOf returns the stream of an op.
func (d *driverQueues) queueOf(o *stageops.Op) table.Queue {
	switch {
	case o.Program != nil:
		return d.compute
	case o.Moves == schedule.Prefetch:
		return d.fromHost
	}
	return d.toHost
}
