package loadline

import (
	"context"
	"errors"
	"fmt"
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

// best returns the stages with the smallest period, and the period; nil when none fit.
func (c *cutter) best(ctx context.Context) (*pipe, float64, error) {
	if !c.possible() {
		return nil, 0, nil
	}
	low, high := 0.0, math.Inf(1)
	var best *pipe
	for period := c.shortest(); best == nil; period *= growth {
		stages, err := c.cut(ctx, period)
		switch {
		case err != nil:
			return nil, 0, err
		case stages != nil:
			best, high = c.pipe(stages), period
		case ctx.Err() != nil: // no sequence was made any more
			return nil, 0, ctx.Err()
		case period > c.longest():
			panic("BUG: stages that fit with one live minibatch each have no period")
		default:
			low = period
		}
	}
	for {
		high = min(high, best.smallest(high))
		if high <= c.shortest() {
			return best, high, nil
		}
		closer, err := c.cut(ctx, high*(1-1e-10))
		if err != nil || closer == nil {
			return best, high, err
		}
		best, high = c.pipe(closer), high*(1-1e-10)
		if middle := (low + high) / 2; middle > low && middle < high {
			closer, err = c.cut(ctx, middle)
			switch {
			case err != nil:
				return nil, 0, err
			case closer == nil:
				low = middle
			default:
				best, high = c.pipe(closer), middle
			}
		}
	}
}

// infeasible returns the error for a memory that is too small for any stages. The smallest memory that it names is that without
// transfers.
func (c *cutter) infeasible() error {
	e := &pipeline.InfeasibleError{Strategy: name, Smallest: c.smallest(), Found: true}
	e.Reason = fmt.Sprintf("no stages fit on %d devices, not even with one live minibatch each and everything recomputed", c.Platform.Devices)
	return e
}
