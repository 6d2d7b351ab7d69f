package joint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/recompute"
)

// automatic is the strategy that chooses among all schedules with a flush.
const automatic = "auto-flush"

// autoParts lists the strategies that automatic chooses among. The first is joint-flush, and the second the same with updates that replicas
// divide. Every schedule follows that joint-flush does not look at.
var autoParts = append([]pipeline.Strategy{{Name: flushing, Type: pipeline.Flushing, Solve: solveFlush}},
	tolerant(append([]pipeline.Strategy{{Name: flushing + " with zero 1", Type: pipeline.Flushing, Solve: solveDivided}},
		slices.DeleteFunc(flush.Strategies(), func(s pipeline.Strategy) bool {
			return s.Type != pipeline.Flushing || slices.ContainsFunc(flushParts, func(part pipeline.Strategy) bool { return part.Name == s.Name })
		})...))...)

// solveAuto returns the fastest plan of all schedules with a flush, synchronization and updates counted, with the one that comes next. A schedule that
// does not take the request, as one for an even number of microbatches, is no candidate. Errors: those of solveFlush.
func solveAuto(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r.Microbatches = cmp.Or(r.Microbatches, 2*r.Platform.Devices)
	var ranked []*pipeline.Plan
	ctx = recompute.Share(ctx)
	best := pick{request: r}
	for i, s := range autoParts {
		plan, err := s.Solve(ctx, r)
		if i == 0 && errors.Is(err, pipeline.ErrPlatform) {
			return nil, underName(automatic, err, s.Name)
		}
		if err := best.add(plan, err); err != nil {
			return nil, underName(automatic, err, s.Name)
		}
		if err == nil && plan != nil {
			plan.Strategy = s.Name
			ranked = append(ranked, plan)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if best.plan == nil {
		return nil, best.unfit(automatic)
	}
	slices.SortStableFunc(ranked, func(a, b *pipeline.Plan) int { return cmp.Compare(best.stepSeconds(a), best.stepSeconds(b)) })
	ranked = slices.DeleteFunc(ranked, func(p *pipeline.Plan) bool { return p == best.plan })
	if len(ranked) > 0 {
		next := ranked[0]
		best.plan.RunnerUp = &pipeline.RunnerUp{Strategy: next.Strategy, Seconds: float64(r.Microbatches) * max(best.stepSeconds(next), best.stepSeconds(best.plan))}
	}
	best.plan.Winner, best.plan.Strategy = best.plan.Strategy, automatic
	return best.plan, nil
}

// solveDivided is solveFlush with ZeRO-1, where the request leaves that open. Errors: ErrPlatform where it does not, or where the plan has no
// replicas; those of solveFlush.
func solveDivided(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	if r.Zero != pipeline.ZeroNothing || r.WholeUpdates {
		return nil, fmt.Errorf("%w: it is asked for, or the updates cannot be divided", pipeline.ErrPlatform)
	}
	r.Zero = pipeline.ZeroShards
	plan, err := solveFlush(ctx, r)
	if err == nil && !slices.ContainsFunc(plan.Stages, func(st pipeline.Stage) bool { return len(st.Devices) > 1 }) {
		return nil, fmt.Errorf("%w: no stage has replicas that could divide an update", pipeline.ErrPlatform)
	}
	return plan, err
}

// tolerant returns schedules that have no plan, ErrPlatform, where they do not take a request that others may take.
func tolerant(all []pipeline.Strategy) []pipeline.Strategy {
	for i, s := range all {
		all[i].Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			plan, err := s.Solve(ctx, r)
			if errors.Is(err, flush.ErrOptions) || errors.Is(err, flush.ErrHalves) || errors.Is(err, pipeline.ErrPlan) {
				err = fmt.Errorf("%w: %w", pipeline.ErrPlatform, err)
			}
			return plan, err
		}
	}
	return all
}
