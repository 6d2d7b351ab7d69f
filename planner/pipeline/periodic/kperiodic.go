package periodic

// k-periodic: 1F1B* without every (k+1)-th minibatch.
//
// Thesis, section 5.2.2, Theorem 16. A stage that 1F1B* would give g live minibatches sees g successive ones at most, of
// which floor(g/(k+1)) are left out at least. So k minibatches take k+1 times the period of 1F1B*, in exchange for fewer
// live ones; sometimes that beats a longer period. Without a k, the k with the least time for a minibatch is taken; leaving
// none out is one of the choices.

import (
	"context"
	"fmt"

	"plimsoll/planner/pipeline"
)

func solveKPeriodic(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	const name = "k-periodic"
	q, err := contiguousPipe(ctx, name, r)
	if err != nil {
		return nil, err
	}
	if err := q.problem.single(); err != nil {
		return nil, err
	}
	if r.PerPeriod < 0 {
		return nil, fmt.Errorf("%w: %d minibatches per period: give at least 1, or 0 for the best number", ErrOptions, r.PerPeriod)
	}
	if r.PerPeriod > q.most() {
		return nil, fmt.Errorf("%w: %d minibatches per period are more than %d tasks: give at most %d", ErrOptions, r.PerPeriod, mostTasks, q.most())
	}
	if one := ones(len(q.problem.stages)); !q.problem.fits(one) {
		return nil, q.problem.infeasible(one, q.least())
	}
	period, skip := q.bestSkip(r.PerPeriod)
	all, _ := q.passages(period, demand{})
	return pipeline.Finish(name, r, q.plan(period, all, skip))
}

// bestSkip returns the period of 1F1B* and which minibatches to leave out: every skip-th, none for 0. k is the number of
// minibatches per period; 0: the best.
func (q *pipe) bestSkip(k int) (period float64, skip int) {
	if k > 1 {
		return q.skipping(k + 1), k + 1
	}
	period = q.smallest(demand{}, q.problem.fits)
	if k == 1 { // leaving out every second one is 1-periodic, and so not better than 1F1B*
		return period, 0
	}
	best := period
	for k := 2; k <= min(len(q.v), q.most()); k++ {
		base := q.skipping(k + 1)
		if each := base * float64(k+1) / float64(k); each < best*(1-slack) {
			best, period, skip = each, base, k+1
		}
	}
	return period, skip
}

// skipping returns the smallest period of 1F1B* that fits without every skip-th minibatch.
func (q *pipe) skipping(skip int) float64 {
	return q.smallest(demand{}, func(live []int) bool {
		left := make([]int, len(live))
		for s, g := range live {
			left[s] = g - g/skip
		}
		return q.problem.fits(left)
	})
}
