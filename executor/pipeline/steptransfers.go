package pipeline

import (
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// stepTransfers are those of a step with a flush, and what orders them and the ops of compute.
//
// Invariant: an op waits, for each other stream, for the latest op before it there that touches bytes of its own, of which one of the two
// writes; a transfer also for the compute op before it in the sequence. So the simulation that the layout follows decides how long
// streams wait for each other, but never what is computed. Behind the last op of each turn compute waits for all transfers, so that ops
// wait for none of another turn.
type stepTransfers struct {
	host   []pack.Item // what is with the host
	owner  []*slab     // of each
	locked int64       // page-locked bytes for it
	base   int64       // where these begin
	duplex bool
	waits  [][]int         // by op of a turn: the ops of other streams that it waits for
	ends   []runtime.Event // likewise: behind it; nil where nobody waits
	final  []int           // the last op of a turn in each stream of transfers
}

// layHost places what is with the host, of each turn where it is of the first.
func (l *stepLayout) layHost() {
	one := len(l.host) / l.turns
	l.locked = pack.Pack(l.host[:one], l.ops/l.turns)
	for i := range l.host {
		it := &l.host[i]
		it.Offset = l.host[i%one].Offset
		l.owner[i].hostCopies = append(l.owner[i].hostCopies, runtime.Span{Space: runtime.Host, Offset: it.Offset, Bytes: it.Bytes})
	}
}

// shiftHost moves what is with the host to where it lies in page-locked memory.
func (l *stepLayout) shiftHost(base int64) {
	l.base = base
	for _, t := range l.stages {
		for i := range t.slabs {
			for k := range t.slabs[i].hostCopies {
				t.slabs[i].hostCopies[k].Offset += base
			}
		}
	}
}

// stepOp is an op of a step as others see it.
type stepOp struct {
	on      stream
	touches []touch
	before  int // of a transfer: the compute op before it in the sequence; none
}

// touch is a piece of memory that an op reads or writes.
type touch struct {
	span  runtime.Span
	write bool
}

// list lists the ops of a turn.
func (l *stepLayout) list() []stepOp {
	all := make([]stepOp, 0, l.ops/l.turns)
	for _, task := range l.tasks[:len(l.tasks)/l.turns] {
		t := l.stages[task.stage]
		ops, sb := t.opsOf(task.minibatch), &t.slabs[task.minibatch]
		list := ops.tasks[task.kind]
		for i := range list {
			all = append(all, l.stepOp(t, ops, sb, &list[i], task.minibatch))
		}
	}
	return all
}

func (l *stepLayout) stepOp(t *localStage, ops *stageOps, sb *slab, o *op, minibatch int) stepOp {
	at := &frame{}
	x := stepOp{before: none}
	add := func(b *block, write bool) {
		if s := span(b, sb, at); s.Bytes > 0 {
			x.touches = append(x.touches, touch{s, write})
		}
	}
	if o.program == nil {
		if x.on = toHost; o.moves == schedule.Prefetch && l.duplex {
			x.on = fromHost
		}
		if before := ops.before[o.at]; before != none {
			x.before = l.op(t, minibatch, before)
		}
		x.touches = append(x.touches, touch{sb.hostCopies[o.host], o.moves == schedule.Offload})
	}
	add(&o.input, false)
	for _, b := range []*block{&o.output, &o.gradOutput, &o.gradInput, &o.scratch, &o.kept} {
		add(b, true)
	}
	return x
}

// meets reports whether two ops touch bytes of which one of them writes.
func (x *stepOp) meets(y *stepOp) bool {
	return slices.ContainsFunc(x.touches, func(a touch) bool {
		return slices.ContainsFunc(y.touches, func(b touch) bool { return (a.write || b.write) && a.span.Overlaps(b.span) })
	})
}

// depend finds what ops wait for. What streams and earlier waits order already is left out.
func (l *stepLayout) depend() {
	all := l.list()
	l.waits, l.ends = make([][]int, len(all)), make([]runtime.Event, len(all))
	streams := []stream{onCompute, toHost, fromHost}
	byStream, waited := map[stream][]int{}, map[[2]stream]int{}
	for i := range all {
		x := &all[i]
		for _, s := range streams {
			if s == x.on {
				continue
			}
			k := [2]stream{x.on, s}
			if q := l.latest(all, byStream[s], x, waited[k]-1); q != none {
				l.waits[i], waited[k] = append(l.waits[i], q), q+1
			}
		}
		byStream[x.on] = append(byStream[x.on], i)
	}
	for _, s := range streams[1:] {
		if n := len(byStream[s]); n > 0 {
			l.final = append(l.final, byStream[s][n-1])
		}
	}
}

// latest returns the latest of some ops behind another one that an op waits for; none.
func (l *stepLayout) latest(all []stepOp, ops []int, x *stepOp, behind int) int {
	for _, q := range slices.Backward(ops) {
		switch {
		case q <= behind:
			return none
		case q == x.before || x.meets(&all[q]):
			return q
		}
	}
	return none
}

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

// moves reports whether the step has transfers.
func (l *stepLayout) moves() bool { return l != nil && len(l.host) > 0 }

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
