// Package staged judges every pipeline plan, whatever its stages run: those without ops of their own by package pipeline,
// those that repeat a period and have ops by package loadline, and here those with a flush whose stages recompute.
//
// # A stage with ops in a plan with a flush
//
// A stage of layers i..j with ops (pipeline.Stage.Ops, and LastOps for the last microbatch) runs for each microbatch a
// forward part F and a backward part B, one task each; F ends with the first op that computes layer j. What they mean, and what
// a microbatch holds inside them and between, is as package loadline says. What is more here:
//
//	time      The ops of B before its first backward recompute, and need no gradient. So B may start before its gradient is
//	          there, by no more than those ops take: a device that waits for a gradient recomputes meanwhile (GPipe, Huang et
//	          al. 2019, section 2.3; torchgpipe, Kim et al. 2020, sections 2.1 and 3.2.4).
//	memory    One part runs at a time, so that the most bytes at any instant are those of some part, in which one microbatch
//	          holds what its ops have made and every other live one what is left between its parts. That is counted exactly.
//
// A stage with ops has one device for itself, its backward is not split, and its ops copy nothing to the host.
package staged

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/loadline"
)

// Check is pipeline.Check for all plans. Errors: loadline.ErrOps, and those of pipeline.Check.
func Check(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) (*pipeline.Report, error) {
	if !mine(plan) {
		return loadline.Check(c, p, plan)
	}
	if err := (pipeline.Request{Chain: c, Platform: p}).Validate(); err != nil {
		return nil, err
	}
	all, err := measure(c, plan)
	if err != nil {
		return nil, err
	}
	free := *p
	free.Memory = slices.Clone(p.Memory)
	for s, st := range plan.Stages {
		if d := st.Devices; all[s] != nil && d[0] >= 0 && d[0] < len(free.Memory) {
			free.Memory[d[0]] = pipeline.NoLimit
		}
	}
	report, err := pipeline.Check(c, &free, flat(plan, all))
	if report == nil {
		return nil, err
	}
	over := memory(p, plan, all, report)
	if said := plan.PerDevicePeak; said != nil && !slices.Equal(said, report.PerDevicePeak) {
		report.Warnings = append(report.Warnings, fmt.Sprintf("the plan says that per_device_peak_bytes is %v, it is %v", said, report.PerDevicePeak))
	}
	if len(over) == 0 {
		return report, err
	}
	if invalid := (*pipeline.InvalidError)(nil); errors.As(err, &invalid) {
		over = append(slices.Clone(invalid.Violations), over...)
	}
	return report, &pipeline.InvalidError{Violations: over}
}

// Flatten returns chain and plan without ops, each task of which takes what its ops take: for what looks at times only, such
// as pipeline.Simulate and timelines. Memory means nothing there. A plan without ops is returned as it is. Errors:
// loadline.ErrOps, pipeline.ErrPlan, pipeline.ErrBranches, chain.ErrFormat.
func Flatten(c *chain.Chain, plan *pipeline.Plan) (*chain.Chain, *pipeline.Plan, error) {
	if !mine(plan) {
		if !loadline.HasOps(plan) {
			return c, plan, nil
		}
		return loadline.Collapse(c, plan)
	}
	if err := pipeline.ValidateChain(c); err != nil {
		return nil, nil, err
	}
	all, err := measure(c, plan)
	if err != nil {
		return nil, nil, err
	}
	return c, flat(plan, all), nil
}

// mine reports whether a plan is judged here: those with a flush whose stages recompute. All with ops for the last microbatch
// are, if only to be refused.
func mine(plan *pipeline.Plan) bool {
	last := slices.ContainsFunc(plan.Stages, func(st pipeline.Stage) bool { return len(st.LastOps) > 0 })
	return last || plan.IsFlush() && loadline.HasOps(plan)
}

// flat returns the plan without ops, with what its tasks take.
func flat(plan *pipeline.Plan, all []*costs) *pipeline.Plan {
	out := *plan
	out.PerDevicePeak = nil // of the plan with ops
	out.Stages = slices.Clone(plan.Stages)
	for s := range out.Stages {
		out.Stages[s].Ops, out.Stages[s].LastOps = nil, nil
	}
	out.Timings = make([]*pipeline.Timing, len(plan.Tasks))
	for i, t := range plan.Tasks {
		if t.Stage >= 0 && t.Stage < len(all) && all[t.Stage] != nil { // else the checker says so
			out.Timings[i] = all[t.Stage].run(plan, t.Shift).timing(t.Kind)
		}
	}
	return &out
}
