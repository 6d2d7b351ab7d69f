package residency

import (
	"cmp"
	"math"
	"slices"

	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// The groups of the ops before one turn: what frees memory comes first.
const (
	drops = iota
	writes
	hostUpdates
	fetchesLast
)

// placed is an op before a turn.
type placed struct {
	turn  int
	group int
	due   float64 // ops of a group come in this order
	op    cycle.Op
}

// build makes the sequence of a choice; nil: what must be on the device does not fit.
func (p *problem) build(x *choice) (seq cycle.Sequence, lack shortage) {
	l := p.lay(x)
	if lack = l.fill(); lack.bytes > 0 {
		return nil, lack
	}
	return l.emit(), lack
}

// emit writes the sequence of a layout whose gaps are filled.
func (l *layout) emit() cycle.Sequence {
	e := emitter{layout: l, ready: map[*gap]float64{}}
	e.hostUpdates()
	l.fetches(e.ready)
	for _, g := range l.gaps {
		if g.away {
			e.leave(g)
		}
	}
	return e.sequence()
}

// emitter writes the ops of a layout.
type emitter struct {
	*layout
	ready map[*gap]float64 // when the host's copy is written
	ops   []placed
}

func (e *emitter) put(turn, group int, due float64, kind schedule.Kind, layer int) {
	e.ops = append(e.ops, placed{turn, group, due, cycle.Op{Kind: kind, Layer: layer}})
}

// leave moves an item to the host at the start of a gap, and back.
func (e *emitter) leave(g *gap) {
	it, due := g.item, e.at(g.to)
	switch it.kind {
	case weightsItem:
		e.writeWeights(g, due)
		e.put(g.fetch, fetchesLast, due, schedule.FetchWeights, it.layer)
	case stateItem:
		e.put(g.from+1, writes, due, schedule.WriteState, it.layer)
		e.put(g.from+1, writes, due, schedule.DropState, it.layer)
		e.put(g.fetch, fetchesLast, due, schedule.FetchState, it.layer)
	case gradientItem:
		e.put(g.from+1, writes, due, schedule.OffloadGradient, it.layer)
		e.put(g.fetch, fetchesLast, due, schedule.FetchGradient, it.layer)
	case activationItem:
		e.put(g.from+1, writes, due, schedule.Offload, it.layer)
		e.put(g.fetch, fetchesLast, due, schedule.Prefetch, it.layer)
		e.ops[len(e.ops)-1].op.Microbatch = it.microbatch
		e.ops[len(e.ops)-2].op.Microbatch = it.microbatch
	}
}

// writeWeights drops weights, behind their copy to the host where this is the first gap since their update.
func (e *emitter) writeWeights(g *gap, due float64) {
	u := g.item.updated
	if u < 0 || e.leftSince(g, u) {
		e.put(g.from+1, drops, due, schedule.DropWeights, g.item.layer)
		return
	}
	if u > g.from {
		u -= e.len()
	}
	turn := u + 1
	e.put(turn, writes, due, schedule.WriteWeights, g.item.layer)
	e.put(g.from+1, writes, due, schedule.DropWeights, g.item.layer)
}

// leftSince reports whether the weights of a gap left the device between their update and the gap.
func (e *emitter) leftSince(g *gap, update int) bool {
	since := func(x *gap) int { return (x.from - update + 2*e.len()) % e.len() }
	for _, i := range g.item.gaps {
		if x := e.gaps[i]; x != g && x.away && since(x) < since(g) {
			return true
		}
	}
	return false
}

// job is an update on the host.
type job struct {
	owner    int
	ready    float64 // its gradient is on the host
	due      float64 // its next forward starts
	earliest int     // turn
	latest   int
}

// hostUpdates places the gradients' copies and the updates on the host, in the order in which the host runs them: of those that are ready
// the most urgent first.
func (e *emitter) hostUpdates() {
	jobs := e.jobs()
	now, link := 0.0, 0.0
	for i := range jobs {
		j := &jobs[i]
		link = max(link, j.ready)
		for _, user := range e.p.users[j.owner] {
			link += e.p.down(e.p.c.Layer(j.owner).WeightGradient())
			e.put(e.whole[user]+1, writes, math.Inf(-1), schedule.OffloadGradient, user)
		}
		j.ready = link
	}
	for len(jobs) > 0 {
		k := mostUrgent(jobs, now)
		j := jobs[k]
		jobs = slices.Delete(jobs, k, k+1)
		now = max(now, j.ready)
		turn := min(max(e.turnAt(now), j.earliest), j.latest)
		if e.p.limits.UpdatesLast {
			turn = max(turn, e.len())
		}
		e.put(turn, hostUpdates, now, schedule.HostUpdate, j.owner)
		now += e.p.hostSeconds(j.owner)
		for _, g := range e.gaps {
			if g.must && g.item.owner == j.owner {
				e.ready[g], g.earliest = now, turn
			}
		}
	}
}

// jobs lists the updates on the host by the time at which their gradients are whole.
func (e *emitter) jobs() (jobs []job) {
	for _, o := range e.p.owners {
		if !e.choice.host[o] {
			continue
		}
		t := min(e.last[o]+1+e.choice.delay[o], e.first[o]+e.len())
		jobs = append(jobs, job{o, e.at(t), e.at(e.first[o] + e.len()), t, e.first[o] + e.len()})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(a.ready, b.ready) })
	return jobs
}

// mostUrgent returns the job to run next at a time: of those that are ready the first that is due, else the first that is ready.
func mostUrgent(jobs []job, now float64) int {
	best := 0
	for k := range jobs {
		if jobs[k].ready <= now && jobs[k].due < jobs[best].due {
			best = k
		}
	}
	return best
}

// sequence sorts the ops before their turns. Those before the first turn stand behind the last.
func (e *emitter) sequence() cycle.Sequence {
	n := e.len()
	for i := range e.ops {
		x := &e.ops[i]
		t := (x.turn+2*n-1)%n + 1 // 1..n
		x.due -= float64((x.turn-t)/n) * e.clock[n]
		x.turn = t
	}
	slices.SortStableFunc(e.ops, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.group, b.group), cmp.Compare(a.due, b.due))
	})
	seq := make(cycle.Sequence, 0, n+len(e.ops))
	k := 0
	for t := 0; t <= n; t++ {
		for ; k < len(e.ops) && e.ops[k].turn == t; k++ {
			seq = append(seq, e.ops[k].op)
		}
		if t < n {
			seq = append(seq, e.turns[t])
		}
	}
	e.p.prime(seq)
	return seq
}

// prime writes the primes of a sequence. An op of a gradient belongs to the step before where it stands before the first backward of
// its layer, or, of an update, of all layers with its weights.
func (p *problem) prime(seq cycle.Sequence) {
	begun := make([]bool, p.n+1)
	for i := range seq {
		op := &seq[i]
		switch op.Kind {
		case schedule.Backward:
			begun[op.Layer] = true
		case schedule.OffloadGradient, schedule.FetchGradient:
			op.Prime = !begun[op.Layer]
		case schedule.Update, schedule.HostUpdate:
			op.Prime = !slices.ContainsFunc(p.users[op.Layer], func(l int) bool { return begun[l] })
		default:
			op.Prime = false
		}
	}
}
