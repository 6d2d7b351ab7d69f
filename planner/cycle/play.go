package cycle

import (
	"math/big"
	"slices"
)

// play plays steps until the state repeats. Errors: *MemoryError, ErrNoSteadyState.
func (p *player) play() error {
	if p.used > p.limit {
		return &MemoryError{Index: -1, Needed: p.used, Limit: p.limit}
	}
	for i := range p.frees { // of the steps before the first
		p.free(int32(i))
	}
	for {
		p.endAll()
		for p.startFirst() {
			if p.begun > p.mostSteps {
				return ErrNoSteadyState
			}
		}
		p.contend()
		next, runs := p.nextEnd()
		switch {
		case !runs:
			return p.stuck()
		case next > p.now+p.together && p.repeats():
			return nil
		case next > 1<<61:
			return ErrNoSteadyState
		}
		p.now = next
	}
}

// nextEnd returns the next instant at which an op ends; false: nothing runs.
func (p *player) nextEnd() (at int64, runs bool) {
	for s := range p.queues {
		if q := &p.queues[s]; q.running != idle && (!runs || q.running < at) {
			at, runs = q.running, true
		}
	}
	return at, runs
}

// endAll ends every op whose time has come, and then frees memory.
func (p *player) endAll() {
	for s := range p.queues {
		q := &p.queues[s]
		if q.running == idle || q.running > p.now+p.together {
			continue
		}
		position := q.ops[q.ended%len(q.ops)]
		q.running = idle
		q.ended++
		t := &p.tasks[position]
		p.used += t.leaves
		p.hostUsed -= t.hostGives
		for _, i := range p.freers[position] {
			p.free(i)
		}
	}
}

// free frees the bytes of a release in every step whose waits have ended.
func (p *player) free(i int32) {
	r := &p.frees[i]
	for p.over(r.waits[:r.count], r.step) {
		p.used -= r.bytes
		r.step++
	}
}

// over reports whether waits of a step have ended.
func (p *player) over(waits []dependency, step int) bool {
	for _, w := range waits {
		k := step
		if w.before {
			k--
		}
		q := &p.queues[w.stream]
		if k >= 0 && q.ended <= k*len(q.ops)+int(w.rank) {
			return false
		}
	}
	return true
}

// startFirst starts, among the streams' next ops, the first in the sequence that can start now.
func (p *player) startFirst() bool {
	best, at := -1, 0
	for s := range p.queues {
		q := &p.queues[s]
		if q.running != idle || len(q.ops) == 0 {
			continue
		}
		if place := q.step*len(p.tasks) + q.next(); (best < 0 || place < at) && p.ready(q) {
			best, at = s, place
		}
	}
	if best < 0 {
		return false
	}
	p.start(&p.queues[best])
	return true
}

// ready reports whether the next op of a queue can start now.
func (p *player) ready(q *queue) bool {
	t := &p.tasks[q.next()]
	compute := &p.queues[Compute]
	switch {
	case p.run.over(q.step):
		return false
	case t.stream != Compute && compute.ended < q.step*len(compute.ops)+int(t.before):
		return false
	case t.takes > 0 && p.used > p.limit-t.takes:
		return false
	}
	return p.over(p.waits[t.waits:t.waitsEnd], q.step)
}

func (p *player) start(q *queue) {
	position := q.next()
	t := &p.tasks[position]
	p.used += t.takes
	p.hostUsed += t.hostTakes
	if p.used > p.peak {
		p.peak, p.peakAt = p.used, instance{q.step, position}
	}
	p.hostPeak = max(p.hostPeak, p.hostUsed)
	if t.stream == Compute && t.before == 0 {
		p.begun = q.step
	}
	ticks := t.ticks
	if p.run.leavesOut(q.step, p.ledger.seq[position]) {
		ticks = 0
	}
	q.running = p.now + ticks
	q.pace = pace{float64(ticks), p.now, 1, len(p.starts)}
	p.starts = append(p.starts, played{instance{q.step, position}, p.now, q.running, p.used})
	q.started++
	if q.rank++; q.rank == len(q.ops) {
		q.step, q.rank = q.step+1, 0
	}
}

// repeats notes the state where a step has begun, and reports whether it was one before.
func (p *player) repeats() bool {
	if p.begun < 0 || p.run != nil && p.inFirst() || len(p.states) > 0 && p.states[len(p.states)-1].step == p.begun {
		return false
	}
	s := snapshot{step: p.begun, now: p.now}
	s.key[0], s.key[1] = p.used, p.hostUsed
	for i := range p.queues {
		q := &p.queues[i]
		s.key[2+i] = int64(q.started - p.begun*len(q.ops))
		if s.left[i] = idle; q.running != idle {
			s.left[i] = q.running - p.now
		}
	}
	p.states = append(p.states, s)
	return p.firstLike(&s) < len(p.states)-1
}

// firstLike returns the first of the states that is equal to one.
func (p *player) firstLike(s *snapshot) int {
	for i := range p.states {
		if p.like(&p.states[i], s) {
			return i
		}
	}
	return len(p.states)
}

// stuck names the op that nothing will let start: all before it have ended, so that it waits for memory.
func (p *player) stuck() error {
	best := -1
	for s := range p.queues {
		if q := &p.queues[s]; len(q.ops) > 0 && (best < 0 || q.step < p.queues[best].step ||
			q.step == p.queues[best].step && q.next() < p.queues[best].next()) {
			best = s
		}
	}
	q := &p.queues[best]
	position := q.next()
	return &MemoryError{position, q.step, p.ledger.seq[position], p.used, p.used + p.tasks[position].takes, p.limit}
}

// repetition returns the states at the ends of the first repetition of a run that repeats.
func (p *player) repetition() (first, last *snapshot) {
	last = &p.states[len(p.states)-1]
	return &p.states[p.firstLike(last)], last
}

// busy returns the ticks in which ops of each kind run between two instants.
func (p *player) busy(from, to int64) (ticks [streams]int64) {
	for _, x := range p.starts {
		s, _ := StreamOf(p.ledger.seq[x.position].Kind)
		ticks[s] += max(0, min(x.end, to)-max(x.at, from))
	}
	return ticks
}

// finish returns the figures of a run that repeats.
func (p *player) finish(k clock) *Result {
	first, last := p.repetition()
	r := &p.result
	*r = Result{WarmUp: first.step, Repeats: last.step - first.step, Peak: p.peak, PeakStep: p.peakAt.step, PeakOp: p.peakAt.position,
		Resident: p.resident, Starts: r.Starts[:0]}
	r.Period, _ = k.exact(last.now-first.now, r.Repeats).Float64()
	for s, ticks := range p.busy(first.now, last.now) {
		r.Busy[s] = k.seconds(ticks / int64(r.Repeats))
	}
	for _, s := range p.starts {
		r.Starts = append(r.Starts, Start{s.step, s.position, k.seconds(s.at), k.seconds(s.end), s.used})
	}
	return r
}

// period returns the exact period of a run that repeats, in seconds.
func (p *player) period(k clock) *big.Rat {
	first, last := p.repetition()
	return k.exact(last.now-first.now, last.step-first.step)
}

// like reports whether two states are equal.
func (p *player) like(a, b *snapshot) bool {
	for s := range a.left {
		x, y := a.left[s], b.left[s]
		if (x == idle) != (y == idle) || max(x-y, y-x) > p.equal {
			return false
		}
	}
	return a.key == b.key
}

// inFirst reports whether ops of the first step have yet to start: what they leave out, later steps do not.
func (p *player) inFirst() bool {
	return slices.ContainsFunc(p.queues[:], func(q queue) bool { return len(q.ops) > 0 && q.step == 0 })
}
