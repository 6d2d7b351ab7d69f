package planner

import (
	"context"
	"errors"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Given returns a plan that somebody else made as a strategy of that name: it gives the plan's sequence, as it is, to whoever asks
// for one for the plan's chain within limits in which it runs. Solve fails with a *strategy.InfeasibleError where it needs more
// memory, else with the errors of pipeline.Plan.For and schedule.Simulate.
func Given(name string, plan *pipeline.Plan) strategy.Strategy {
	return strategy.Strategy{
		Name: name, Summary: "a plan that is given", Paper: "the plan", Section: "the whole file", Joins: true,
		Solve: func(_ context.Context, p strategy.Problem) (schedule.Sequence, error) { return given(name, plan, p) },
	}
}

func given(name string, plan *pipeline.Plan, p strategy.Problem) (schedule.Sequence, error) {
	if err := plan.For(p.Chain); err != nil {
		return nil, err
	}
	_, err := schedule.Simulate(p.Chain, plan.Sequence(), schedule.Limits{Memory: p.Memory, Link: p.Link})
	if over := (*schedule.MemoryError)(nil); !errors.As(err, &over) {
		return slices.Clone(plan.Sequence()), err
	}
	// Without a limit nothing waits for memory, and so it runs in the peak that it has there.
	free, err := schedule.Simulate(p.Chain, plan.Sequence(), schedule.Limits{Memory: schedule.NoLimit, Link: p.Link})
	if err != nil {
		return nil, err
	}
	small := &strategy.InfeasibleError{Strategy: name, Memory: p.Memory, Smallest: free.Peak}
	if free.PeakOp >= 0 {
		small.Op = plan.Sequence()[free.PeakOp]
		small.LayerName = p.Chain.Layer(small.Op.Layer).Name
	}
	return nil, small
}
