package pipeline

import (
	"fmt"
	"math"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
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
