package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

// versioned returns strategies without a flush that plan with the versions vertical_sync, too.
func versioned(all []pipeline.Strategy) []pipeline.Strategy {
	out := slices.Clone(all)
	for i, s := range out {
		if s.Type == pipeline.Flushing {
			continue
		}
		out[i].Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			if r.Versions != pipeline.VerticalSync || len(r.WeightCopies) > 0 {
				return s.Solve(ctx, r)
			}
			return solveVerticalSync(ctx, s, r)
		}
		out[i].Parts = versioned(s.Parts)
	}
	return out
}

// leastCopies is a version and its gradient.
const leastCopies = 2

// solveVerticalSync plans with vertical_sync (PipeDream, section 3.3), where each stage keeps as many copies of its weights as the first stage
// has minibatches in flight, and one for the gradient. A strategy sizes stages one by one, so it is asked with a fixed number of copies: with
// the fewest of which its plan needs no more. Another plan may be faster, or fit where none of these does. A bound is that of the fewest
// copies, which no plan has less of. Errors: those of the strategy, pipeline.ErrPlan for replicas.
func solveVerticalSync(ctx context.Context, s pipeline.Strategy, r pipeline.Request) (*pipeline.Plan, error) {
	bound := 0.0
	for copies := leastCopies; ; copies++ {
		asked := r
		asked.WeightCopies = []float64{float64(copies)}
		plan, err := s.Solve(ctx, asked)
		unfinished, late := errors.AsType[*pipeline.UnfinishedError](err)
		if late {
			plan = unfinished.Best
		}
		if infeasible, ok := errors.AsType[*pipeline.InfeasibleError](err); ok { // what is enough for these copies may not be for all
			unsized := *infeasible
			unsized.Smallest, unsized.Devices, unsized.Best = 0, 0, nil
			unsized.Reason = fmt.Sprintf("with %d copies of the weights: %s", copies, infeasible.Reason)
			return nil, &unsized
		}
		if plan == nil || err != nil && !late {
			return plan, err
		}
		for i, stage := range plan.Stages {
			if len(stage.Devices) > 1 {
				return nil, fmt.Errorf("%s: %w: stage %d is on %d devices, and vertical_sync counts the updates of the first stage, which others have more or fewer of: give --strategy loadline, madpipe or contiguous",
					s.Name, pipeline.ErrPlan, i+1, len(stage.Devices))
			}
		}
		if copies == leastCopies {
			bound = plan.Predicted.LowerBound
		}
		plan.WeightCopies = nil
		report, wrong := pipeline.Check(r.Chain, r.Platform, plan)
		if invalid, ok := errors.AsType[*pipeline.InvalidError](wrong); ok && invalid.OnlyMemory() {
			if late { // a longer search may have found one
				return nil, &pipeline.UnfinishedError{Strategy: s.Name, Gap: math.Inf(1)}
			}
			continue
		}
		if wrong != nil {
			return nil, wrong
		}
		plan.PerDevicePeak, plan.Predicted.LowerBound = report.PerDevicePeak, bound
		if late && copies > leastCopies {
			unfinished.Gap = math.Inf(1)
		}
		return plan, err
	}
}
