package periodic

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

// slack is the relative rounding that sums of times are forgiven; Check forgives 1e-9 of the period.
const slack = 1e-12

// fits reports whether a time is within a bound, up to rounding.
func fits(x, bound float64) bool { return x <= bound*(1+slack) }

// turns returns how many periods a time needs, the begun one included, up to rounding.
func turns(x, period float64) int { return int(math.Ceil(x / period * (1 - 2*slack))) }

// Around returns delay ⊕ load of the thesis, section 7.1.2: the shortest time from the start of a forward to the end
// of its backward. The resource takes a minibatch each period and works on it for load. Later resources need delay
// from the start of the next forward to the end of the next backward. The result is false if the load exceeds the
// period.
func Around(delay, load, period float64) (float64, bool) {
	if !fits(load, period) {
		return 0, false
	}
	if end := float64(turns(delay, period)) * period; !fits(delay+load, end) {
		delay = end
	}
	return delay + load, true
}

// Live returns how many minibatches are live in a stage that needs so long from the start of its forward to the end of
// its backward.
func Live(delay, period float64) int { return max(1, turns(delay, period)) }

// Instant is the period, seconds, of a pipeline in which nothing takes time.
const Instant = 1e-9

// mostTasks bounds the tasks of a pattern: numbers of replicas without common factors multiply.
const mostTasks = 1 << 20

// pipe is contiguous stages and the boundaries between them, in the order of the chain: virtual stages, each run by
// resources of its own (thesis, end of 5.2.1).
type pipe struct {
	problem *problem
	v       []virtual
	repeats int // minibatches after which every replica has had its turns

	shortest float64 // no shorter period is wanted
}

// virtual is a stage or boundary. Of replicas, or of the links between two sets of them, each takes every so many-th
// minibatch, in turn.
type virtual struct {
	pipeline.Virtual
	every int
}

// newPipe lists the virtual stages. A boundary between replicas takes the time of its slowest link.
func newPipe(p *problem) *pipe {
	q := &pipe{problem: p, repeats: 1}
	for s, st := range p.stages {
		replicas := len(st.Devices)
		q.repeats = LCM(q.repeats, replicas)
		forward, backward := p.seconds(s)
		q.v = append(q.v, virtual{pipeline.Virtual{Stage: s, Forward: forward, Backward: backward}, replicas})
		if s+1 == len(p.stages) {
			break
		}
		link := virtual{pipeline.Virtual{Stage: s, Boundary: true}, LCM(replicas, len(p.stages[s+1].Devices))}
		for m := range link.every {
			x, y := device(st, m), device(p.stages[s+1], m)
			link.Forward = max(link.Forward, p.Platform.Seconds(p.Chain.Activation(st.Last), x, y))
			link.Backward = max(link.Backward, p.Platform.Seconds(p.Chain.Gradient(st.Last), x, y))
		}
		if link.U() > 0 {
			q.v = append(q.v, link)
		}
	}
	return q
}

// device returns the replica that works on minibatch m, m >= 0: they take turns (1F1B-RR).
func device(s pipeline.Stage, m int) int { return s.Devices[m%len(s.Devices)] }

// gcd returns the greatest common divisor of numbers above 0.
func gcd(x, y int) int {
	for y != 0 {
		x, y = y, x%y
	}
	return x
}

// LCM returns the least common multiple of numbers above 0; math.MaxInt for one beyond that.
func LCM(x, y int) int {
	g := gcd(x, y)
	if x/g > math.MaxInt/y {
		return math.MaxInt
	}
	return x / g * y
}

// most returns how many minibatches a pattern of at most mostTasks tasks has.
func (q *pipe) most() int { return mostTasks / (2 * len(q.v)) }

// bounded refuses replicas that take too long until each has had its turns. Errors: ErrStages.
func (q *pipe) bounded() error {
	if q.repeats <= q.most() {
		return nil
	}
	var replicas []int
	for _, st := range q.problem.stages {
		replicas = append(replicas, len(st.Devices))
	}
	slices.Sort(replicas)
	return fmt.Errorf("%w: stages with %v replicas repeat only after more than %d tasks: give them numbers of replicas with a small common multiple",
		ErrStages, slices.Compact(replicas), mostTasks)
}

// passage is how minibatches pass a virtual stage.
type passage struct {
	delay   float64 // from the start of the forward to the end of the backward
	abreast int     // so many minibatches in a row start their forwards, and end their backwards, together; the next ones as many periods later
	flying  int     // rounds in flight, from their first forward to their last backward, where they matter; of a boundary 0
}

// demand holds the conditions on passages.
type demand struct {
	least, most []int // live minibatches on each replica, by stage; nil: 1, and any number
	// rounds asks for as few rounds in flight as there can be. If they are no more than the live minibatches, replicas keep rounds, as
	// PipeDream's replicas with synchronized gradients do. All start the next round when the last one has ended its round, and miss the
	// same updates.
	rounds bool
}

// lag returns how many periods minibatches that go x abreast must start ahead, so that none of them is late where they go y abreast.
func lag(x, y int) int { return y - gcd(x, y) }

// passages returns how minibatches pass every virtual stage when one enters each period, with the shortest delays, and so the fewest
// live minibatches. false: there is no such schedule.
//
// It is Algorithm 6 of the thesis, and the ⊕ of its section 7.1.2. From the last virtual stage on, a stage joins its
// successor's group if its forward and backward, around later stages, fit into as many periods of its resource.
// Otherwise it waits and begins a new group. A stage that must have so many live minibatches at least starts a forward
// that much ahead.
//
// Replicas work one behind the other, a period apart, as minibatches come to them. Where rounds would then last too long for those
// in flight, they may work abreast, all or some of them, and minibatches wait for each other before and behind them.
func (q *pipe) passages(period float64, d demand) ([]passage, bool) {
	all := make([]passage, len(q.v))
	for x := len(q.v) - 1; x >= 0; x-- {
		var next *passage
		if x+1 < len(q.v) {
			next = &all[x+1]
		}
		var ok bool
		if all[x], ok = q.v[x].passage(next, period, d); !ok {
			return nil, false
		}
	}
	return all, true
}

// passage returns the best passage before the next one, nil behind the last: that with the fewest rounds in flight, where they matter,
// and of those the shortest. A boundary goes with the stage behind it.
func (v virtual) passage(next *passage, period float64, d demand) (best passage, ok bool) {
	turn := float64(v.every) * period
	least, most := d.bounds(v)
	first, last := v.choices(next, d)
	for abreast := first; abreast <= last; abreast++ {
		if v.every%abreast != 0 {
			continue
		}
		delay := float64(least-1) * turn
		if next != nil {
			delay = max(delay, next.delay+float64(lag(abreast, next.abreast)+lag(next.abreast, abreast))*period)
		}
		delay, fine := Around(delay, v.U(), turn)
		p := passage{delay: delay, abreast: abreast}
		if !v.Boundary && d.rounds {
			p.flying = Live(delay+float64(v.every-abreast)*period, turn)
		}
		if !fine || Live(delay, turn) > most {
			continue
		}
		if !ok || p.flying < best.flying || p.flying == best.flying && delay < best.delay {
			best, ok = p, true
		}
	}
	return best, ok
}

// choices returns between which numbers minibatches may go abreast: those of a boundary go as behind it.
func (v virtual) choices(next *passage, d demand) (first, last int) {
	switch {
	case v.Boundary:
		return next.abreast, next.abreast
	case d.rounds:
		return 1, v.every
	}
	return 1, 1
}

// bounds returns between which numbers of live minibatches a virtual stage must have.
func (d demand) bounds(v virtual) (least, most int) {
	least, most = 1, math.MaxInt
	if v.Boundary {
		return least, most
	}
	if d.least != nil {
		least = d.least[v.Stage]
	}
	if d.most != nil {
		most = d.most[v.Stage]
	}
	return least, most
}

// live returns NCA of each stage: how many minibatches are live on one of its replicas.
func (q *pipe) live(all []passage, period float64) []int {
	live := make([]int, len(q.problem.stages))
	for x, v := range q.v {
		if !v.Boundary {
			live[v.Stage] = Live(all[x].delay, float64(v.every)*period)
		}
	}
	return live
}

// periods returns all periods at which delays can change, in ascending order. They are sums of consecutive virtual
// stages, divided by whole numbers where there are replicas. (A comparison of delays is one of m·T + such a sum with
// n·T.) Between two of them the numbers of live minibatches stay the same. The first is the largest load, the last serves
// with one live minibatch everywhere. This is the exact form of the bisection of Algorithm 7.
func (q *pipe) periods() []float64 {
	load, total := q.shortest, 0.0
	for _, v := range q.v {
		load = max(load, v.U()/float64(v.every))
		total += v.U()
	}
	total = max(total, load)
	if total == 0 {
		return []float64{Instant}
	}
	all := []float64{load, total}
	for y := range q.v {
		sum := 0.0
		for x := y; x >= 0; x-- {
			sum += q.v[x].U()
			for n := 1; sum/float64(n) > load && (n == 1 || q.repeats > 1); n++ {
				all = append(all, sum/float64(n))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// smallest returns the smallest period at which the numbers of live minibatches are fine; they must be at the largest
// one. Without replicas more time never needs more live minibatches (thesis, 5.2.1), which allows bisection.
func (q *pipe) smallest(d demand, fine func(live []int) bool) float64 {
	all := q.periods()
	good := func(period float64) int {
		if p, ok := q.passages(period, d); ok && fine(q.live(p, period)) {
			return 0
		}
		return -1
	}
	at := slices.IndexFunc(all, func(period float64) bool { return q.repeats > 1 && good(period) == 0 })
	if q.repeats == 1 {
		at, _ = slices.BinarySearchFunc(all, 0, func(period float64, _ int) int { return good(period) })
	}
	if at < 0 || at >= len(all) {
		panic("BUG: the longest period does not serve")
	}
	return all[at]
}

// plan folds the schedule with these passages into a pattern: minibatches enter a period apart, except every skip-th, which
// is left out (0: none is). Forwards follow each other without idle time (Algorithm 6, phase 3), but for what replicas wait.
func (q *pipe) plan(period float64, all []passage, skip int) *pipeline.Plan {
	p := q.problem.need.Plan(q.problem.stages)
	pattern, enter := q.repeats, q.repeats
	if skip > 0 {
		pattern, enter = skip, skip-1
	}
	p.Period, p.MinibatchesPerPeriod = float64(pattern)*period, enter
	f := NewFolder(p)
	first := 0.0 // when minibatch 0 starts
	for x, v := range q.v {
		if x > 0 {
			first += q.v[x-1].Forward + float64(lag(all[x-1].abreast, all[x].abreast))*period
		}
		for m := range enter {
			start := first + float64(m-m%all[x].abreast)*period
			f.Add(q.kind(v, pipeline.F), v.Stage, q.on(v, m, false), start, m)
			f.Add(q.kind(v, pipeline.B), v.Stage, q.on(v, m, true), start+all[x].delay-v.Backward, m)
		}
	}
	f.Finish()
	return p
}

// kind turns F and B into the communications of a boundary.
func (q *pipe) kind(v virtual, k pipeline.Kind) pipeline.Kind {
	switch {
	case !v.Boundary:
		return k
	case k == pipeline.F:
		return pipeline.CF
	}
	return pipeline.CB
}

// on returns the device that works on minibatch m, or sends for it.
func (q *pipe) on(v virtual, m int, back bool) int {
	if v.Boundary && back {
		return device(q.problem.stages[v.Stage+1], m)
	}
	return device(q.problem.stages[v.Stage], m)
}
