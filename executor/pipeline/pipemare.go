package pipeline

import (
	"fmt"
	"math"

	"plimsoll/executor/internal/order"
	"plimsoll/planner/pipeline"
)

// rescheduled returns the learning rate of T1 (ibid., section 3.1): for update k of stage s
//
//	α_{k,s} = α_k / τ_s^{p_k},  p_k = 1 - min(k/K, 1)
//
// with the base rate α_k and the delay τ_s of the stage's forward, in updates. A delay below one update leaves the rate as
// it is. Computed in float64 and rounded once.
func (p PipeMare) rescheduled(base float32, update int, delay float64) float32 {
	power := 1 - min(float64(update)/float64(p.Anneal), 1)
	return float32(float64(base) / math.Pow(max(delay, 1), power))
}

// checkPipeMare refuses corrections that mean nothing, and finds what they correct. Errors: ErrPlan.
func (lay *layout) checkPipeMare() error {
	p := lay.opt.PipeMare
	switch {
	case p == nil:
		return nil
	case p.Anneal < 0 || p.Anneal == 0 && p.Decay == 0:
		return fmt.Errorf("%w: PipeMare with Anneal %d and Decay %v: want at least 1 update, or a decay", order.ErrPlan, p.Anneal, p.Decay)
	case lay.order.Plan.IsFlush() || lay.order.Plan.Versions != pipeline.Latest:
		return fmt.Errorf("%w: PipeMare corrects weight versions %q, the plan's are %q", order.ErrPlan, pipeline.Latest, lay.order.Plan.Versions)
	}
	lay.delays = delaysOf(lay.order, lay.rules, lay.group)
	return nil
}

// Delays returns, for every stage, how many of its updates a minibatch's forward misses: those that the stage makes between
// the forward and the update with the minibatch's gradients. The pipeline is full; it is the mean over minibatches. With
// 1F1B, stage s of n, from 0, and an update for each minibatch: n-1-s.
func (e *Executor) Delays() []float64 { return delaysOf(e.order, e.rules, e.group) }

func delaysOf(o *order.Order, rules []order.Rule, group int) []float64 {
	missed := make([]float64, len(rules))
	n := 2 * o.Long() * o.Repeats * group // in the second half: whole periods, and whole updates everywhere
	for s, r := range rules {
		at := o.Made(r, s, n)
		for m := n / 2; m < n; m++ {
			missed[s] += float64(m/r.Group - at[m])
		}
		missed[s] /= float64(n - n/2)
	}
	return missed
}
