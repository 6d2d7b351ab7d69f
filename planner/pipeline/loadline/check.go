package loadline

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Check is pipeline.Check for plans whose stages may have ops. Times, order and everything about stages without ops are judged
// by it, on a chain in which each stage with ops is one layer that takes what its ops take; the memory of such a stage is
// counted as the package says. It has one device, which has no other stage, and its backward is one task. Errors: ErrOps and
// those of pipeline.Check.
func Check(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) (*pipeline.Report, error) {
	if !HasOps(plan) {
		return pipeline.Check(c, p, plan)
	}
	if err := (pipeline.Request{Chain: c, Platform: p}).Validate(); err != nil {
		return nil, err
	}
	costs, err := measure(c, plan)
	if err != nil {
		return nil, err
	}
	if err := transfers(hostOf(p), plan, costs); err != nil {
		return nil, err
	}
	whole, merged := collapsed(c, plan, costs)
	free := *p
	free.Memory = slices.Clone(p.Memory)
	for _, st := range plan.Stages {
		if d := st.Devices; len(st.Ops) > 0 && d[0] >= 0 && d[0] < len(free.Memory) {
			free.Memory[d[0]] = pipeline.NoLimit
		}
	}
	report, err := pipeline.Check(whole, &free, merged)
	if report == nil {
		return nil, err
	}
	return report, join(err, memory(hostOf(p), p, plan, costs, report))
}

// join adds violations to those that an error lists.
func join(err error, more []pipeline.Violation) error {
	var invalid *pipeline.InvalidError
	switch {
	case len(more) == 0:
		return err
	case errors.As(err, &invalid):
		more = append(slices.Clone(invalid.Violations), more...)
	}
	return &pipeline.InvalidError{Violations: more}
}

// transfers refuses transfers that cannot be judged.
func transfers(h host, plan *pipeline.Plan, costs []Cost) error {
	for s := range costs {
		switch {
		case len(costs[s].moves) == 0:
		case h.bandwidth == 0:
			return fmt.Errorf("%w: stage %d offloads, but field \"host_bandwidth_bytes_per_s\" does not say how fast", pipeline.ErrPlatform, s)
		case plan.IsFlush() || plan.Repeats() != 1:
			return fmt.Errorf("%w: stage %d offloads: that is for periodic plans with one minibatch a period", ErrOps, s)
		}
	}
	return nil
}

// Collapse returns a chain with one layer for each stage that has ops, which takes what its ops take, and the plan for it: for
// what looks at times only, such as pipeline.Simulate and timelines. Its memory means nothing. Errors: ErrOps, pipeline.ErrPlan,
// pipeline.ErrBranches, chain.ErrFormat.
func Collapse(c *chain.Chain, plan *pipeline.Plan) (*chain.Chain, *pipeline.Plan, error) {
	if err := pipeline.ValidateChain(c); err != nil {
		return nil, nil, err
	}
	costs, err := measure(c, plan)
	if err != nil {
		return nil, nil, err
	}
	whole, merged := collapsed(c, plan, costs)
	return whole, merged, nil
}

// HasOps reports whether a stage of the plan has ops of its own.
func HasOps(plan *pipeline.Plan) bool {
	return slices.ContainsFunc(plan.Stages, func(st pipeline.Stage) bool { return len(st.Ops) > 0 })
}

// measure returns the costs of the stages with ops. The stages cover the chain.
func measure(c *chain.Chain, plan *pipeline.Plan) ([]Cost, error) {
	costs, split, next := make([]Cost, len(plan.Stages)), plan.Split(), 1
	for s, st := range plan.Stages {
		if st.First != next || st.Last < st.First || st.Last > c.Len() {
			return nil, fmt.Errorf("%w: stage %d has layers %d to %d of %d, it must begin with layer %d", pipeline.ErrPlan, s, st.First, st.Last, c.Len(), next)
		}
		next = st.Last + 1
		if len(st.Ops) == 0 {
			continue
		}
		var err error
		switch costs[s], err = Measure(c, st); {
		case err != nil:
			return nil, fmt.Errorf("stage %d: %w", s, err)
		case split[s]:
			return nil, fmt.Errorf("%w: stage %d has ops and W tasks: its backward cannot be split", ErrOps, s)
		case len(st.Devices) != 1 || shared(plan, s):
			return nil, fmt.Errorf("%w: stage %d has ops, so it must have one device for itself", ErrOps, s)
		}
	}
	if next != c.Len()+1 {
		return nil, fmt.Errorf("%w: the stages end with layer %d, the chain has %d", pipeline.ErrPlan, next-1, c.Len())
	}
	return costs, nil
}

// shared reports whether a device of a stage has another stage.
func shared(plan *pipeline.Plan, stage int) bool {
	for s, st := range plan.Stages {
		if s != stage && slices.ContainsFunc(st.Devices, func(d int) bool { return slices.Contains(plan.Stages[stage].Devices, d) }) {
			return true
		}
	}
	return false
}

// collapsed returns the chain with one layer for each stage with ops, and the plan for it.
func collapsed(c *chain.Chain, plan *pipeline.Plan, costs []Cost) (*chain.Chain, *pipeline.Plan) {
	k := pipeline.NewCosts(c)
	whole := *c
	whole.Layers = nil
	merged := *plan
	merged.Stages = slices.Clone(plan.Stages)
	for s, st := range plan.Stages {
		first := whole.Len() + 1
		if len(st.Ops) > 0 {
			l := *c.Layer(st.Last)
			l.ForwardS, l.BackwardS, l.WeightBytes = costs[s].Forward, costs[s].Backward, k.Weights(st.First, st.Last)
			whole.Layers = append(whole.Layers, l)
		} else {
			whole.Layers = append(whole.Layers, c.Layers[st.First-1:st.Last]...)
		}
		merged.Stages[s] = pipeline.Stage{First: first, Last: whole.Len(), Devices: st.Devices}
	}
	return &whole, &merged
}

// memory sets the peaks of devices whose stage has ops, and returns which are above what a device has, and which stages have
// transfers that cannot run.
func memory(h host, p *pipeline.Platform, plan *pipeline.Plan, costs []Cost, r *pipeline.Report) (broken []pipeline.Violation) {
	for s, st := range plan.Stages {
		if len(st.Ops) == 0 {
			continue
		}
		d := st.Devices[0]
		held, why := live(h, plan, s, &costs[s], r.NCA[s])
		if why != nil {
			broken = append(broken, pipeline.Violation{Rule: why.rule, Task: pipeline.None, Other: pipeline.None, Device: pipeline.None,
				Reason: fmt.Sprintf("stage %d on device %d: %s", s, d, why.reason)})
			continue
		}
		need := r.PerDeviceWeights[d] + r.PerDeviceBuffers[d] + held
		r.PerDevicePeak[d] = need
		if limit := p.Memory[d]; need > limit {
			broken = append(broken, pipeline.Violation{Rule: pipeline.RuleMemory, Task: pipeline.None, Other: pipeline.None, Device: d, Needed: need, Limit: limit,
				Reason: fmt.Sprintf("device %d needs %s (weights %s, buffers %s, %d live minibatches of stage %d with its ops %s), it has %s",
					d, units.Precise(need), units.Bytes(r.PerDeviceWeights[d]), units.Bytes(r.PerDeviceBuffers[d]), r.NCA[s], s, units.Bytes(held), units.Precise(limit))})
		}
	}
	return broken
}

// live returns what the live minibatches of a stage hold at most.
func live(h host, plan *pipeline.Plan, stage int, cost *Cost, g int) (int64, *misfit) {
	if len(cost.moves) == 0 {
		return cost.bytes(g), nil
	}
	return cost.held(h, rhythmIn(plan, stage), len(cost.moves))
}
