package loadline

import (
	"context"
	"errors"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/partition"
)

// solve returns the better of two plans: contiguous stages that may recompute, and madpipe's, whose devices may have several
// stages, which do not.
func solve(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	mine, err := Contiguous(ctx, r)
	if err != nil && !errors.Is(err, pipeline.ErrInfeasible) {
		return nil, err
	}
	other, otherErr := madpipe(ctx, r)
	switch {
	case otherErr != nil:
		return nil, otherErr
	case other == nil || err == nil && mine.SecondsPerMinibatch() <= other.SecondsPerMinibatch():
		return mine, err
	}
	other.Strategy = name
	return other, nil
}

const name = "loadline"

// madpipe returns madpipe's plan; nil when nothing fits there.
func madpipe(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	all := partition.Strategies()
	at := slices.IndexFunc(all, func(s pipeline.Strategy) bool { return s.Name == "madpipe" })
	plan, err := all[at].Solve(ctx, r)
	var unfinished *pipeline.UnfinishedError
	switch {
	case errors.As(err, &unfinished):
		return unfinished.Best, nil
	case errors.Is(err, pipeline.ErrInfeasible):
		return nil, nil
	}
	return plan, err
}

// Contiguous returns the best plan of contiguous stages, one on a device: loadline without madpipe's plans, which take longer to find.
// Errors: *pipeline.InfeasibleError, the context's, and those of requests
// that no periodic strategy takes.
func Contiguous(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	c, err := newCutter(ctx, r)
	if err != nil {
		return nil, err
	}
	best, period, err := c.best(ctx)
	if err == nil && c.Platform.Host > 0 {
		best, period, err = c.offloaded(ctx, best, period)
	}
	if err != nil {
		return nil, err
	}
	if best == nil {
		return nil, c.infeasible()
	}
	return pipeline.Finish(name, r, best.plan(period))
}
