package cycle

import (
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

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

// runs returns the ops that run now.
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

// runningOf returns the class of an op by which it slows others.
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
