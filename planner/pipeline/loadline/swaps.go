package loadline

import (
	"fmt"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Swap is an activation on its way to the host and back. Times are seconds from the start of the forward of its minibatch.
type Swap struct {
	Activation        int     // its index
	Offload, Prefetch int     // positions of the two ops in the stage's ops
	Seconds           float64 // of either transfer
	Out, Back         float64 // when they start
}

// Swaps returns when the transfers of each stage of a plan run, in the order of the offloads; none for a stage without. Errors:
// those of Check that are about them.
func Swaps(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) ([][]Swap, error) {
	all := make([][]Swap, len(plan.Stages))
	if !Offloads(plan) {
		return all, nil
	}
	costs, err := measure(c, plan)
	if err != nil {
		return nil, err
	}
	h := hostOf(p)
	if err := transfers(h, plan, costs); err != nil {
		return nil, err
	}
	for s := range costs {
		cost := &costs[s]
		if len(cost.moves) == 0 {
			continue
		}
		swaps, why := cost.swaps(h, rhythmIn(plan, s), len(cost.moves))
		if why != nil {
			return nil, fmt.Errorf("%w: stage %d: %s", ErrOps, s, why.reason)
		}
		for k, t := range swaps {
			v := &cost.moves[k]
			all[s] = append(all[s], Swap{Activation: v.index, Offload: v.out, Prefetch: v.back, Seconds: v.seconds(h), Out: t.out, Back: t.back})
		}
	}
	return all, nil
}

// Offloads reports whether stages of a plan have transfers.
func Offloads(plan *pipeline.Plan) bool {
	return slices.ContainsFunc(plan.Stages, func(st pipeline.Stage) bool { return len(staying(st.Ops)) < len(st.Ops) })
}

// rhythmIn returns the rhythm of a stage of a plan with one minibatch a period.
func rhythmIn(plan *pipeline.Plan, stage int) rhythm {
	var f, b pipeline.Task
	for _, t := range plan.Tasks {
		switch {
		case t.Stage != stage:
		case t.Kind == pipeline.F:
			f = t
		case t.Kind == pipeline.B:
			b = t
		}
	}
	return rhythmOf(f, b, plan.Period)
}
