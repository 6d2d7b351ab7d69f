package pipeline

import (
	"cmp"
	"math/big"
	"slices"
	"sort"

	"plimsoll/planner/cycle"
)

// WorkOrder is the order of all work of a period, or of the step of a plan with a flush.
type WorkOrder struct {
	// Moments is how many instants a period has at which work starts or ends. Those that differ by no more than rounding are one.
	Moments int
	Devices [][]Work     // by device of the platform: what it issues, in order
	Passing [][]Passing  // by device: gradients that pass through it, in the order of their backwards
	Ops     []*OpMoments // by stage; nil without ops, and in a plan that does not repeat a period of one minibatch

	periodic bool
	spans    map[gate]Interval
	parts    map[partsOf][]Interval
}

// Work is a piece of work as the device that issues it sees it. In period j it is for minibatch j·R + Shift, R being Plan.Repeats. A
// message is issued by the device that sends it.
type Work struct {
	Kind  Kind
	Stage int
	Shift int // in a plan with a flush the microbatch
	Task  int // position in the plan, of a message between replicas behind all tasks; None: the plan does not list it
	To    int // of a message the device that receives it, of Admitting the one that sends; else NoDevice
	Far   int // the other stage of a communication through a portal; 0: the next one
	// First and Last are the layers of gradients, or new weights, and Part is which part of them, counted from 1; 0: all of them.
	First, Last, Part int
	Before            Kind // of weights for a turn: its first task (Synchronization.Before)
	// Closes says that a B, or a W, is the last one of its kind that a device has in a round of its stage.
	Closes bool
	Op     cycle.Op // of CycleOp
	Place  Place
}

// Compare orders places.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Half, q.Half), cmp.Compare(p.Rank, q.Rank))
}

// Moment returns the moment of a place.
func (p Place) Moment() int { return floorDiv(p.Half, 2) }

// Joint returns the place of a sum over all replicas of a stage at once, which stands for the message there.
func (p Place) Joint(stage int) Place { return Place{p.Half, rankOfSums + stage} }

const (
	// rankOfSums is the rank of the first message between replicas in a half moment. Messages come after all tasks, and updates after
	// messages.
	rankOfSums    = 1 << 24
	rankOfUpdates = 1 << 28
)

// partsOf tells apart messages of parts of gradients: from one device of a stage to another.
type partsOf struct{ stage, from, to int }

// OpMoments is when the ops of a stage run, of a plan that repeats a period of one minibatch: moments of the minibatch whose number is its
// residue.
type OpMoments struct {
	Ops []Interval // by position in the stage's ops; of a transfer when its link carries it
	// OffloadsInput says that the input of the stage goes to the host. Held is until when the stage holds it then: its transfer, and what
	// reads it before, have ended.
	OffloadsInput bool
	Held          int
	// Ahead is when the batch begins to come from the host, where it comes before the forward; else when that begins.
	Ahead int
}

// Interval is from one moment to another, of the minibatch whose number is its residue.
type Interval struct{ From, To int }

// During returns when a task runs; a communication that the plan leaves out takes no time behind the task before it.
func (o *WorkOrder) During(kind Kind, stage, far, residue int) Interval {
	return o.spans[gate{kind, stage, far, residue}]
}

// UntilAdded returns how long parts of gradients that go from one device to another are there until they are added up. If gradients are
// divided, the stage is None and the parts are those of all stages.
func (o *WorkOrder) UntilAdded(stage, from, to int) []Interval {
	return o.parts[partsOf{stage, from, to}]
}

// Most returns the largest number of intervals that hold at one moment, when they repeat with the period. An end counts before a start
// at the same moment.
func (o *WorkOrder) Most(list []Interval) int {
	most := min(1, len(list))
	for _, at := range list {
		n := 0
		for _, i := range list {
			n += o.holding(i, at.From)
		}
		most = max(most, n)
	}
	return most
}

// holding returns how many repetitions of an interval hold at a moment.
func (o *WorkOrder) holding(i Interval, at int) int {
	switch {
	case o.periodic:
		return max(0, floorDiv(at-i.From, o.Moments)-floorDiv(at-i.To, o.Moments))
	case i.From <= at && at < i.To || i.From == at:
		return 1
	}
	return 0
}

func floorDiv(a, b int) int { return (a - modulus(a, b)) / b }

// inOrder returns the work of every resource, in order.
func (l *layout) inOrder() map[resource][]entry {
	if l.queues == nil {
		m := l.findMoments()
		if l.queues = l.findOrder(m, nil); l.plan.Zero.dividesWeights() {
			l.queues = l.findOrder(m, divisionOf(l).placesOfWeights(m)) // turns are in the order of devices
		}
	}
	return l.queues
}

// findOrder finds the order of each resource; some jobs have places that are known.
func (l *layout) findOrder(m *moments, known map[*job]Place) map[resource][]entry {
	all := map[resource][]entry{}
	for _, j := range l.jobs {
		q := entry{job: j, Place: Place{m.begin(j), 2 * l.rank(j)}}
		if at, is := known[j]; is {
			q.Place = at
		}
		if l.period != nil {
			q.later = floorDiv(q.Half, 2*m.count())
			q.Half -= q.later * 2 * m.count()
		}
		all[l.resource(j)] = append(all[l.resource(j)], q)
	}
	for _, queue := range all {
		slices.SortStableFunc(queue, func(a, b entry) int {
			return cmp.Or(a.Compare(b.Place), a.job.residue-b.job.residue-(a.later-b.later)*l.repeats)
		})
	}
	return all
}

// rank is when a job comes in the passage of one minibatch.
func (l *layout) rank(j *job) int {
	back := 4*len(l.plan.Stages) - 2*j.stage
	if b := j.bucket; b != nil {
		return 4*len(l.plan.Stages) + 1 + int(b.Kind)
	}
	switch j.kind {
	case F:
		return 2 * j.stage
	case CF:
		return 2*j.stage + 1
	case CB:
		return back - 1
	case B:
		return back
	}
	return 4*len(l.plan.Stages) + 1
}

// moments numbers the instants of a period at which work starts or ends, in order. Instants that differ by no more than rounding have one
// number. The instants of later periods are counted on. A plan with a flush has one period.
type moments struct {
	period ticks   // nil for a flush plan
	eps    ticks   // what rounding may change
	first  []ticks // by moment: the earliest instant that has its number
}

// findMoments numbers the starts and ends of all jobs, and some other times.
func (l *layout) findMoments(others ...ticks) *moments {
	m := &moments{period: l.period, eps: new(big.Int).Div(l.span(), tolerance)}
	for _, j := range l.jobs {
		others = append(others, j.start, j.end())
		if j.early.Sign() > 0 {
			others = append(others, add(j.start, j.early))
		}
	}
	all := make([]ticks, len(others))
	for i, t := range others {
		_, all[i] = m.within(t)
	}
	slices.SortFunc(all, ticks.Cmp)
	for i, t := range all {
		if i == 0 || less(m.eps, sub(t, all[i-1])) {
			m.first = append(m.first, t)
		}
	}
	return m
}

// within returns a time within its period. The end of a period, up to rounding, is the begin of the next one.
func (m *moments) within(t ticks) (periods int, at ticks) {
	if m.period == nil {
		return 0, t
	}
	n := new(big.Int).Div(add(t, m.eps), m.period)
	return int(n.Int64()), sub(t, n.Mul(n, m.period))
}

// count returns how many moments a period has.
func (m *moments) count() int { return len(m.first) }

// number returns the moment of a time that is one of those numbered.
func (m *moments) number(t ticks) int {
	n, at := m.within(t)
	return n*m.count() + sort.Search(m.count(), func(i int) bool { return less(at, m.first[i]) }) - 1
}

// interval returns the moments at which a job starts and ends.
func (m *moments) interval(j *job) Interval { return Interval{m.number(j.start), m.number(j.end())} }

// begin returns the half moment at which a job begins. Each moment has two: work that takes no time, rounding aside, begins in the first
// half of it, other work in the second.
func (m *moments) begin(j *job) (half int) {
	half = 2 * m.number(j.start)
	if less(m.eps, j.length) {
		half++
	}
	return half
}

// WeightBuffers is how many buffers a device has for weights that are divided: those of a turn come while the turn before runs.
const WeightBuffers = 2

// Passing is gradients of a round of a stage that pass through a device. They are there from the start of the backward that makes them until all
// parts have left, and the device has added up its own.
type Passing struct {
	Stage, Microbatch int // that of the device
	Interval
}

// weightTurns returns the turns of a device, in order.
func (l division) weightTurns(d int) []*weightTurn {
	if l.inOrder(); l.found.of == nil { // that may ask for turns itself
		l.found.of, l.found.by = make([][]*weightTurn, l.platform.Devices), map[place]*weightTurn{}
		for d := range l.found.of {
			l.found.of[d] = l.findTurns(d)
		}
		for _, j := range l.found.messages {
			if t := l.found.by[j.fetches()]; t != nil {
				t.gathers = append(t.gathers, j)
			}
		}
	}
	return l.found.of[d]
}

// findTurns finds the turns of a device.
func (l division) findTurns(d int) (all []*weightTurn) {
	for _, q := range l.inOrder()[resource{d, d}] {
		j := q.job
		if j.kind == W || stageOf(l.divided, j.stage) == nil {
			continue
		}
		if n := len(all) - 1; n >= 0 && all[n].stage == j.stage {
			all[n].last = j
			continue
		}
		t := &weightTurn{stage: j.stage, first: j, last: j}
		all, l.found.by[j.place()] = append(all, t), t
	}
	return all
}

// placesOfWeights returns the places of all messages of weights.
func (l division) placesOfWeights(m *moments) map[*job]Place {
	all := map[*job]Place{}
	for d := range l.platform.Devices {
		turns := l.weightTurns(d)
		for i, t := range turns {
			for _, j := range t.gathers {
				all[j] = l.placeOfWeights(m, turns, i, j)
			}
		}
	}
	return all
}

// freeFor returns the place from which on a turn has its buffer: behind the last task of the turn before that has it.
func (l division) freeFor(m *moments, turns []*weightTurn, i int) Place {
	if i < WeightBuffers {
		return Place{Rank: i - 2*WeightBuffers} // before all tasks, in the order of turns
	}
	last := turns[i-WeightBuffers].last
	return Place{m.begin(last), 2*l.rank(last) + 1}
}

// placeOfWeights returns the place of a message of weights. If the first task of its turn begins in the same half moment, or in the one
// before, the message stands just before that. Else it stands behind the tasks that begin when it does, in the order of turns. As tasks of no
// time may all begin then, it always stands behind the place from which on its buffer is free.
func (l division) placeOfWeights(m *moments, turns []*weightTurn, i int, j *job) Place {
	first, free := turns[i].first, l.freeFor(m, turns, i)
	at := Place{m.begin(j), 2*l.rank(&job{kind: W}) + 1 + i}
	if half := m.begin(first); half/2 == at.Half/2 && half <= at.Half {
		at = Place{half, 2*l.rank(first) - 1}
	}
	if at.Compare(free) <= 0 {
		return Place{free.Half, free.Rank + 1}
	}
	return at
}
