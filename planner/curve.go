package planner

import (
	"context"

	"plimsoll/internal/await"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/frontier"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// exact are the strategies whose program gives every limit at once.
var exact = map[string]func(context.Context, *chain.Chain) (*remat.Frontier, error){
	"revolve": remat.Revolve, "rotor-exact": remat.Exact, "rotor-floating": remat.Floating,
}

// Curve returns the makespan of a strategy by memory; r's own memory is ignored. If the strategy knows every step of the
// curve, Curve returns all of them, and true. Otherwise it samples at most the given number of limits, up to store-all's
// peak. Callback asked, which may be nil, is called after each limit. Errors: those of the strategy,
// *pipeline.InfeasibleError when it has no sequence at store-all's peak.
func Curve(ctx context.Context, s pipeline.Strategy, r pipeline.Request, limits int, asked func()) (curve []frontier.Point, whole bool, err error) {
	if of, ok := exact[s.Name]; ok {
		curve, err = steps(ctx, s.Name, of, r.Chain)
		return curve, true, err
	}
	all, err := schedule.Simulate(r.Chain, remat.StoreAll(r.Chain), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return nil, false, err
	}
	solve := func(ctx context.Context, memory int64) (frontier.Point, error) {
		at := r
		at.Platform = r.Platform.WithMemory(memory)
		point, err := point(ctx, s, at)
		if asked != nil {
			asked()
		}
		return point, err
	}
	curve, err = frontier.Sample(ctx, solve, r.Chain.InputBytes, all.Peak, limits)
	return curve, false, err
}

func steps(ctx context.Context, name string, of func(context.Context, *chain.Chain) (*remat.Frontier, error), c *chain.Chain) ([]frontier.Point, error) {
	f, err := await.Do(ctx, func() (*remat.Frontier, error) { return of(ctx, c) })
	if err != nil {
		return nil, err
	}
	var curve []frontier.Point
	for _, step := range f.Breakpoints() {
		seq, err := f.Sequence(step.Memory)
		if err != nil {
			return nil, err
		}
		curve = append(curve, frontier.Point{Memory: step.Memory, Makespan: step.Makespan, By: name, Sequence: seq})
	}
	return curve, nil
}

// point plans for one limit. Nothing in the sequence waits for memory that it does not have at its peak, so the peak does
// as a limit.
func point(ctx context.Context, s pipeline.Strategy, r pipeline.Request) (frontier.Point, error) {
	if s.Name == auto.Name {
		best, err := auto.Plan(ctx, strategy.ProblemOf(r), auto.Options{})
		if err != nil {
			return frontier.Point{}, err
		}
		return frontier.Point{Memory: best.Peak, Makespan: best.Makespan, By: best.Winner, Bound: best.Bound, Sequence: best.Sequence}, nil
	}
	plan, err := s.Solve(ctx, r)
	if err != nil {
		return frontier.Point{}, err
	}
	return frontier.Point{Memory: plan.Peak(), Makespan: plan.Predicted.Makespan, By: s.Name, Bound: plan.Predicted.LowerBound, Sequence: plan.Sequence()}, nil
}
