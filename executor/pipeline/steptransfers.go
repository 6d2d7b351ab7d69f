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
func (d taskCompiler) waitFor(q table.Queue, t *localStage, o *stageops.Op, f *inFlight) (waits bool, err error) {
	if !d.step.moves() {
		return false, nil
	}
	for _, w := range d.step.waits[d.step.inTurn(t, o, f)] {
		if err := q.Wait(d.step.ends[w]); err != nil {
			return true, err
		}
		waits = true
	}
	if o.Program != nil || t.opsOf(f.minibatch).Before[o.At] != none {
		return waits, nil
	}
	begun := t.slabs[f.slab].forward
	if err := d.compute.Record(begun); err != nil {
		return true, err
	}
	return true, q.Wait(begun)
}

// tellEnd puts an event behind an op of a step with transfers, if others wait for it. Behind the last op of a turn compute waits for all
// transfers: the next turn, or the update, begins behind them.
func (d taskCompiler) tellEnd(q table.Queue, t *localStage, o *stageops.Op, f *inFlight) error {
	if !d.step.moves() {
		return nil
	}
	n := d.step.inTurn(t, o, f)
	if ev := d.step.ends[n]; ev != nil {
		if err := q.Record(ev); err != nil {
			return err
		}
	}
	if n < len(d.step.ends)-1 {
		return nil
	}
	for _, last := range d.step.final {
		if err := d.compute.Wait(d.step.ends[last]); err != nil {
			return err
		}
	}
	return nil
}

// carry issues a transfer of a step.
func (d taskCompiler) carry(t *localStage, o *stageops.Op, f *inFlight) error {
	return copyActivation(d.queueOf(o), o, &t.slabs[f.slab], &f.at)
}

// copyActivation notes the copy of an activation to the host, or back.
func copyActivation(q table.Queue, o *stageops.Op, sb *slab, at *frame) error {
	copied := sb.hostCopies[o.Host]
	if o.Moves == schedule.Prefetch {
		return q.Copy(span(&o.Output, sb, at).Part(0, copied.Bytes), copied)
	}
	return q.Copy(copied, span(&o.Input, sb, at).Part(0, copied.Bytes))
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
