package planner

import (
	"context"
	"errors"
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
// the fewest of which its plan needs no more.
func solveVerticalSync(ctx context.Context, s pipeline.Strategy, r pipeline.Request) (*pipeline.Plan, error) {
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
			return nil, &unsized
		}
		if plan == nil || err != nil && !late {
			return plan, err
		}
		plan.WeightCopies = nil
		report, wrong := pipeline.Check(r.Chain, r.Platform, plan)
		if invalid, ok := errors.AsType[*pipeline.InvalidError](wrong); ok && invalid.OnlyMemory() {
			continue
		}
		if wrong != nil {
			return nil, wrong
		}
		plan.PerDevicePeak = report.PerDevicePeak
		return plan, err
	}
}
