package pipeline

import (
	"cmp"
	"slices"
)

// orderer finds the order of all work of a plan.
type orderer struct {
	*layout
	moments *moments
	devices [][]queuedWork
	ops     []*opTimes
	sumOf   map[int]*sum // by position of a message
	rounds  map[roundOf]*roundEnd
}

// queuedWork is work and the moment at which it starts, within its period.
type queuedWork struct {
	Work
	start int
}

// sortWork puts work in order. Tasks of no time may have one place: those of earlier minibatches come first (inOrder).
func sortWork(list []queuedWork) {
	slices.SortStableFunc(list, func(a, b queuedWork) int { return cmp.Or(a.Place.Compare(b.Place), a.Shift-b.Shift) })
}

// add gives a device work for the minibatch whose number is a residue, which starts at a moment and stands in a half moment.
func (o *orderer) add(device int, w Work, residue, start, half int) {
	o.devices[device] = append(o.devices[device], o.inPeriod(w, residue, start, half))
}

// inPeriod puts work into the period that has it.
func (o *orderer) inPeriod(w Work, residue, start, half int) queuedWork {
	later := 0
	if o.period != nil {
		later = floorDiv(half, 2*o.moments.count())
	}
	w.Shift, w.Place.Half = residue-later*o.repeats, half-later*2*o.moments.count()
	return queuedWork{w, max(0, start-later*o.moments.count())}
}

// addTasks gives every task to the device that issues it.
func (o *orderer) addTasks() {
	for _, j := range o.jobs[:len(o.plan.Tasks)] {
		w := Work{Kind: j.kind, Stage: j.stage, Task: j.task, To: NoDevice, Far: j.far, Place: Place{Rank: 2 * o.rank(j)}}
		device := j.device
		if j.kind.Communication() {
			device, w.To = j.from, j.to
		}
		o.add(device, w, j.residue, o.moments.number(j.start), o.moments.begin(j))
	}
}

// addLeftOut adds the communications that take no time and that the plan leaves out, each at the end of the task whose result it carries.
func (o *orderer) addLeftOut() {
	for d, list := range o.devices {
		for _, w := range list {
			r := modulus(w.Shift, o.repeats)
			kind, boundary, to := CF, w.Stage, w.Stage+1
			if w.Kind == B {
				kind, boundary, to = CB, w.Stage-1, w.Stage-1
			}
			if w.Kind != F && w.Kind != B || !o.leavesOut(kind, boundary, r) {
				continue
			}
			end := o.moments.number(o.at[place{w.Kind, w.Stage, r}].end())
			x := Work{Kind: kind, Stage: boundary, Task: None, To: o.at[place{F, to, r}].device}
			x.Place.Rank = 2 * o.rank(&job{kind: kind, stage: boundary})
			o.add(d, x, r, end, 2*end)
		}
	}
	for _, list := range o.devices {
		sortWork(list)
	}
}

// leavesOut reports whether the plan leaves out a communication over a boundary, if there is one.
func (o *orderer) leavesOut(kind Kind, boundary, residue int) bool {
	return boundary >= 0 && boundary+1 < len(o.plan.Stages) && o.crosses(boundary, residue) && o.at[place{kind, boundary, residue}] == nil
}

// addUpdates gives every stage's devices the updates behind its minibatches, at one place on all devices; with a flush behind the step. Those
// of stages with messages between replicas follow the messages.
func (o *orderer) addUpdates() {
	var all []queuedWork
	for d, list := range o.devices {
		for i, w := range list {
			if o.period != nil && o.leavesStage(w.Work) && !o.sends(w.Stage) {
				all = append(all, o.updateBehind(d, i))
			}
		}
	}
	for s := range o.plan.Stages {
		if o.period == nil {
			all = append(all, queuedWork{Work: Work{Kind: Update, Stage: s, Shift: o.repeats - 1, Task: None, To: NoDevice, Place: Place{o.stepEnd(), s}}})
		}
		for _, d := range o.plan.Line(s) {
			for _, w := range all {
				if w.Stage == s {
					o.devices[d] = append(o.devices[d], w)
				}
			}
		}
	}
}

// stepEnd returns the half moment behind all work of a step with a flush.
func (o *orderer) stepEnd() (half int) { return 2 * o.moments.count() }

// leavesStage reports whether work is the last task of a minibatch in a stage.
func (o *orderer) leavesStage(w Work) bool {
	return w.Kind == W || w.Kind == B && !o.split[w.Stage]
}

// updateBehind returns the update behind a last task, number i of a device: when it ends, and before the next task of the device.
func (o *orderer) updateBehind(device, i int) queuedWork {
	task := o.devices[device][i]
	r := modulus(task.Shift, o.repeats)
	w := Work{Kind: Update, Stage: task.Stage, Task: None, To: NoDevice}
	end := o.moments.number(o.at[place{task.Kind, task.Stage, r}].end())
	next, periods := o.nextTask(device, i)
	period := 2 * o.moments.count()
	if next.Place.Half+periods*period > 2*end+(task.Shift-r)/o.repeats*period {
		w.Place.Rank = 2*o.rank(&job{kind: W}) + 1
		return o.inPeriod(w, r, end, 2*end)
	}
	w.Shift, w.Place = task.Shift-periods*o.repeats, Place{next.Place.Half, next.Place.Rank - 1}
	if periods == 0 && next.Place.Half == task.Place.Half {
		w.Place.Rank = max(task.Place.Rank, w.Place.Rank)
	}
	return queuedWork{w, next.start}
}

// nextTask returns the next task of a device that is no message, and how many periods later that is.
func (o *orderer) nextTask(device, i int) (next queuedWork, periods int) {
	list := o.devices[device]
	for i++; list[i%len(list)].Kind.Communication(); i++ {
	}
	return list[i%len(list)], i / len(list)
}

// yield moves messages before a recomputing backward if they start before it needs its gradient. Its device waits for the
// gradient, and other devices may need the messages before they send it. Weights that may come later are let come later.
func (o *orderer) yield(list []queuedWork) {
	for i := len(list) - 1; i >= 0; i-- {
		b := list[i]
		needs, at := o.needsGradient(b), i // where the backward is
		for j := i + 1; j < len(list); j++ {
			m := list[j]
			if m.Kind == Admitting && m.start >= needs {
				continue
			}
			own := m.Kind == CB && m.Shift == b.Shift && (m.Stage == b.Stage-1 || m.Far == b.Stage)
			if !m.Kind.Communication() && (m.Kind < Reducing || m.Kind > Owning) || own || m.start >= needs {
				break
			}
			copy(list[at+1:j+1], list[at:j])
			list[at] = m
			at++
		}
	}
}

// needsGradient returns the moment within the period at which a backward needs its gradient; of other work that at which it starts.
func (o *orderer) needsGradient(w queuedWork) int {
	if w.Kind != B {
		return w.start
	}
	j := o.at[place{B, w.Stage, modulus(w.Shift, o.repeats)}]
	if j.early.Sign() == 0 {
		return w.start
	}
	return w.start + o.moments.number(add(j.start, j.early)) - o.moments.number(j.start)
}

// spans returns when all tasks run, with the communications that the plan leaves out.
func (o *orderer) spans() map[gate]Interval {
	all := map[gate]Interval{}
	for _, j := range o.jobs[:len(o.plan.Tasks)] {
		all[gate{j.kind, j.stage, j.far, j.residue}] = o.moments.interval(j)
	}
	for s := range len(o.plan.Stages) - 1 {
		for r := range o.repeats {
			for kind, task := range map[Kind]place{CF: {F, s, r}, CB: {B, s + 1, r}} {
				if end := o.moments.number(o.at[task].end()); o.leavesOut(kind, s, r) {
					all[gate{kind, s, 0, r}] = Interval{end, end}
				}
			}
		}
	}
	return all
}

// roundOf is a round of a stage, by the residue of its last minibatch.
type roundOf struct{ stage, last int }

// roundEnd is where a round ends, for the minibatch whose number is its residue.
type roundEnd struct {
	backwards map[int]int // by device: the half moment of the last one
	end       int         // the moment at which all that the round needs for its update has ended
	half      int         // that of the latest work of it
}

// opTimes is OpMoments in ticks.
type opTimes struct {
	from, to []ticks
	held     ticks // nil: it is not held for the host
	ahead    ticks
}

// all lists the times.
func (x *opTimes) all() (all []ticks) {
	for i := range x.from {
		all = append(all, x.from[i], x.to[i])
	}
	if x.held != nil {
		all = append(all, x.held)
	}
	return append(all, x.ahead)
}

// number returns the moments of the times.
func (x *opTimes) number(m *moments) *OpMoments {
	out := &OpMoments{Ahead: m.number(x.ahead)}
	for i := range x.from {
		out.Ops = append(out.Ops, Interval{m.number(x.from[i]), m.number(x.to[i])})
	}
	if out.OffloadsInput = x.held != nil; out.OffloadsInput {
		out.Held = m.number(x.held)
	}
	return out
}

// sends reports whether the plan has messages between the replicas of a stage.
func (o *orderer) sends(stage int) bool {
	return slices.ContainsFunc(o.sums, func(x *sum) bool { return x.stage == stage })
}
