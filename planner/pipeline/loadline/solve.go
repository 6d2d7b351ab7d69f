package loadline

import (
	"context"
	"errors"
	"math"

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
	below := math.Inf(1)
	if err == nil {
		below = mine.SecondsPerMinibatch()
	}
	other, otherErr := MadPipe(ctx, r, below)
	switch {
	case otherErr != nil:
		return nil, otherErr
	case other == nil || other.SecondsPerMinibatch() >= below:
		return mine, err
	}
	other.Strategy = name
	return other, nil
}

const name = "loadline"

// MadPipe is partition.MadPipe, and nil when nothing fits there.
func MadPipe(ctx context.Context, r pipeline.Request, below float64) (*pipeline.Plan, error) {
	plan, err := partition.MadPipe(ctx, r, below)
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
