package pipeline

import (
	"cmp"
	"math/big"
	"slices"

	"plimsoll/planner/chain"
)

// Queue lists, in order, the work of a device or a link in a period, or in the step of a plan with a flush.
type Queue struct {
	From, To int // a device has both the same; a link that carries messages both ways has the smaller first
	Work     []Work
}

// Work is a task in the order of its device or link. In period j it is for minibatch j·R + Shift, R being Plan.Repeats.
type Work struct {
	Task  int // position in the plan; of a message between replicas its position behind all tasks
	Shift int // in a plan with a flush the microbatch
}

// Order returns the order in which devices and links do the work of a plan, devices and links by their numbers. The order follows from
// the starts. Work that starts at one instant, rounding aside, is in the order of a minibatch's passage, with work of no duration first.
// Errors: those of Check up to RuleBoundary, ErrPlan.
func Order(c *chain.Chain, p *Platform, plan *Plan) ([]Queue, error) {
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	var all []Queue
	for r, queue := range l.inOrder() {
		q := Queue{From: r.x, To: r.y}
		for _, t := range queue {
			q.Work = append(q.Work, Work{Task: t.job.task, Shift: t.job.residue - t.later*l.repeats})
		}
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b Queue) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	return all, nil
}

// entry is a job in an order, and how many periods it starts after the one in which its minibatch's number is its residue.
type entry struct {
	job   *job
	begin ticks // within the period
	later int
}

// inOrder returns what every resource does, in order.
func (l *layout) inOrder() map[resource][]entry {
	if l.queues == nil {
		l.queues = l.findOrder()
	}
	return l.queues
}

// findOrder finds the order in start times. No other place does.
func (l *layout) findOrder() map[resource][]entry {
	eps := new(big.Int).Div(l.span(), tolerance)
	all := map[resource][]entry{}
	for _, j := range l.jobs {
		r := l.resource(j)
		all[r] = append(all[r], l.queue(j, eps))
	}
	for _, queue := range all {
		l.sort(queue, eps)
	}
	return all
}

// queue returns when a job begins within the period; the end of a period, up to rounding, is the begin of the next one.
func (l *layout) queue(j *job, eps ticks) entry {
	q := entry{job: j, begin: j.start}
	if l.period == nil {
		return q
	}
	later := periods(add(j.start, eps), l.period)
	q.begin = sub(j.start, new(big.Int).Mul(later, l.period))
	q.later = int(later.Int64())
	return q
}

// sort puts the work of a resource into order. Where starts differ by no more than rounding, work of no duration comes first. Then work
// that comes first when a minibatch passes does, and then that of the first minibatch.
func (l *layout) sort(queue []entry, eps ticks) {
	slices.SortStableFunc(queue, func(a, b entry) int { return a.begin.Cmp(b.begin) })
	for i := 0; i < len(queue); {
		j := i + 1
		for j < len(queue) && !less(eps, sub(queue[j].begin, queue[j-1].begin)) {
			j++
		}
		slices.SortStableFunc(queue[i:j], func(a, b entry) int {
			return cmp.Or(a.job.length.Sign()-b.job.length.Sign(), l.rank(a.job)-l.rank(b.job), a.job.residue-b.job.residue-(a.later-b.later)*l.repeats)
		})
		i = j
	}
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
