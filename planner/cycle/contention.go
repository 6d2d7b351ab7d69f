package cycle

import (
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Rounded rates leave differences where ops slow each other. These are the parts of a step's durations, all added up, that do not count: ops
// that end within the shorter part end together, and states that differ by less than the longer one are equal.
const (
	togetherPart = 1 << 30
	equalPart    = 1 << 20
)

// pace is how fast the op that a stream runs goes on.
type pace struct {
	left   float64 // ticks that it would take alone, from since on
	since  int64
	slower float64 // how many times as long it takes
	played int     // in player.starts
}

// tolerate sets by how much instants may differ, of a plan whose ops take so many ticks together.
func (p *player) tolerate(ticks int64) {
	p.together, p.equal = 0, 0
	if p.contention != nil {
		p.together, p.equal = ticks/togetherPart, ticks/equalPart
	}
}

// contend sets how fast everything that runs goes on from now. Between two instants at which something starts or ends, rates are constant.
func (p *player) contend() {
	if p.contention == nil {
		return
	}
	all := p.runs()
	for s := range p.queues {
		q := &p.queues[s]
		if q.running == idle {
			continue
		}
		slower := p.slower(q, all)
		if slower == q.slower {
			continue
		}
		q.left = max(0, q.left-float64(p.now-q.since)/q.slower)
		q.since, q.slower = p.now, slower
		q.running = p.now + int64(math.Min(math.Ceil(q.left*slower), 1<<61))
		p.starts[q.played].end = q.running
	}
}

// runs returns what runs now.
func (p *player) runs() (all chain.Running) {
	for s := range p.queues {
		if q := &p.queues[s]; q.running != idle {
			all |= runningOf(p.latest(q).Kind)
		}
	}
	return all
}

// latest returns the op that a queue started last.
func (p *player) latest(q *queue) Op { return p.ledger.seq[p.starts[q.played].position] }

// runningOf returns what an op is for the others.
func runningOf(k schedule.Kind) chain.Running {
	switch s, _ := StreamOf(k); s {
	case Compute:
		return chain.RunningOp
	case Host:
		return chain.RunningHostUpdate
	}
	return 1 << way(k)
}

// slower returns how many times as long what a queue runs takes beside the others.
func (p *player) slower(q *queue, all chain.Running) float64 {
	op := p.latest(q)
	beside := all &^ runningOf(op.Kind)
	switch op.Kind {
	case schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard:
		return p.contention.Forward(op.Layer, beside)
	case schedule.Backward:
		return p.contention.Backward(op.Layer, beside)
	case schedule.Update:
		return p.contention.Update(beside)
	case schedule.HostUpdate:
		return p.contention.HostUpdate(beside)
	}
	return p.contention.Copy(way(op.Kind), beside)
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
