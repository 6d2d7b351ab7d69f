package pipeline

import (
	"fmt"
	"math"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
)

// newDiscrepancies says what is corrected in which stages. Errors: ErrPlan.
func (lay *layout) newDiscrepancies() error {
	lay.discrepancies = make([]discrepancy, len(lay.rules))
	p := lay.opt.PipeMare
	if p == nil || p.Decay == 0 {
		return nil
	}
	if !(p.Decay > 0 && p.Decay < 1) {
		return fmt.Errorf("%w: PipeMare with Decay %v: want a number between 0 and 1, or 0 for no correction of the weights", order.ErrPlan, p.Decay)
	}
	for s, tau := range lay.delays {
		lay.discrepancies[s] = discrepancy{tau: tau, decay: p.Decay}
	}
	return nil
}

// layOut places the scalars.
func (c *discrepancy) layOut(g *allocator) {
	for i := range c.scalars {
		if c.corrects() {
			c.scalars[i] = g.alloc(kernels.ScalarsBytes)
		}
	}
}

// rules returns the two steps, u -= scale w + decay u, as weight decays and scales.
func (c *discrepancy) rules() (rules [2]kernels.SGD, scalars [2]kernels.Scalars) {
	gamma := math.Pow(c.decay, 1/c.tau)
	for i, x := range [2]struct{ scale, decay float64 }{
		{1 - gamma - gamma/c.tau, 1 + gamma/c.tau},
		{c.tau*(1-gamma) - 1, 1 + c.tau},
	} {
		rules[i] = kernels.SGD{WeightDecay: float32(x.decay)}
		scalars[i] = kernels.Scalars{LR: 1, GradScale: float32(x.scale)}
	}
	return rules, scalars
}

// estimate returns the copy of the weights that backwards see.
func (s *localStage) estimate() int { return len(s.weights) - 1 }

// corrections returns the launches that correct the weights of a stage around an update; none where it corrects nothing.
func (b *binder) corrections(s *localStage) (steps [2]table.Prepared, err error) {
	c := &s.discrepancy
	if !c.corrects() || c.steps[0].Launch != nil || s.weights[0].Bytes == 0 {
		return c.steps, nil
	}
	rules, _ := c.rules()
	for i, rule := range rules {
		steps[i], err = b.change(rule, kernels.UpdateOperands{
			Elements: s.weights[0].Bytes / kernels.Float32.Size(), Param: s.weights[s.estimate()], Grad: s.weights[0], Scalars: c.scalars[i],
		})
		if err != nil {
			return steps, fmt.Errorf("correction of the weights of stage %d: %w", s.stage, err)
		}
	}
	c.steps = steps
	return steps, nil
}

// perform launches what there is to do, if there is anything.
func (d *compiler) perform(step table.Prepared) {
	if step.Launch == nil {
		return
	}
	d.compute.Launch(step)
}

// forget begins a run: nothing has changed so far.
func (d *compiler) forget() {
	for _, t := range d.stages {
		if t == nil || !t.discrepancy.corrects() {
			continue
		}
		d.compute.Copy(t.weights[t.estimate()], t.weights[0])
	}
}

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
