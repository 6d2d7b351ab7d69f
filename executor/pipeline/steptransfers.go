package pipeline

import (
	"slices"

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
	return makeEvents(d.dev, events...)
}

// inTurn returns the number of an op within its turn.
func (l *stepLayout) inTurn(t *localStage, o *op, f *inFlight) int {
	return l.op(t, f.minibatch, o.at) % (l.ops / l.turns)
}

// waitFor lets an op of a step with transfers wait for others, if it has to. A transfer with no compute op before it waits for what its
// task begins with.
func (d taskCompiler) waitFor(q queue, t *localStage, o *op, f *inFlight) (waits bool, err error) {
	if !d.step.moves() {
		return false, nil
	}
	for _, w := range d.step.waits[d.step.inTurn(t, o, f)] {
		if err := q.wait(d.step.ends[w]); err != nil {
			return true, err
		}
		waits = true
	}
	if o.program != nil || t.opsOf(f.minibatch).before[o.at] != none {
		return waits, nil
	}
	begun := t.slabs[f.slab].forward
	if err := d.compute.record(begun); err != nil {
		return true, err
	}
	return true, q.wait(begun)
}

// tellEnd puts an event behind an op of a step with transfers, if others wait for it. Behind the last op of a turn compute waits for all
// transfers: the next turn, or the update, begins behind them.
func (d taskCompiler) tellEnd(q queue, t *localStage, o *op, f *inFlight) error {
	if !d.step.moves() {
		return nil
	}
	n := d.step.inTurn(t, o, f)
	if ev := d.step.ends[n]; ev != nil {
		if err := q.record(ev); err != nil {
			return err
		}
	}
	if n < len(d.step.ends)-1 {
		return nil
	}
	for _, last := range d.step.final {
		if err := d.compute.wait(d.step.ends[last]); err != nil {
			return err
		}
	}
	return nil
}

// carry issues a transfer of a step.
func (d taskCompiler) carry(t *localStage, o *op, f *inFlight) error {
	return copyActivation(d.queueOf(o), o, &t.slabs[f.slab], &f.at)
}

// copyActivation notes the copy of an activation to the host, or back.
func copyActivation(q queue, o *op, sb *slab, at *frame) error {
	copied := sb.hostCopies[o.host]
	if o.moves == schedule.Prefetch {
		return q.copy(span(&o.output, sb, at).Part(0, copied.Bytes), copied)
	}
	return q.copy(copied, span(&o.input, sb, at).Part(0, copied.Bytes))
}

// queueOf returns the stream of an op.
func (d *driver) queueOf(o *op) queue {
	switch {
	case o.program != nil:
		return d.compute
	case o.moves == schedule.Prefetch:
		return d.fromHost
	}
	return d.toHost
}
