package loadline

import (
	"context"
	"math"

	"plimsoll/planner/pipeline/recompute"
)

// offloaded returns the best stages, some of which offload, and their period; if there are no better ones, it returns the given
// ones. If nothing fits without transfers, best is nil, and high infinite.
func (c *cutter) offloaded(ctx context.Context, best *pipe, high float64) (*pipe, float64, error) {
	if best == nil && !c.hopeful() {
		return nil, 0, nil
	}
	c.rich = recompute.New(c.costs, math.MaxInt64).Until(ctx)
	low := c.shortest()
	for period := low; best == nil && period <= c.longest(); period *= growth {
		found, at, err := c.try(ctx, period)
		if err != nil {
			return nil, 0, err
		}
		if found == nil {
			low = period
		} else {
			best, high = found, at
		}
	}
	for best != nil && high-low > closeness*high {
		middle := (low + high) / 2
		found, at, err := c.try(ctx, middle)
		switch {
		case err != nil:
			return nil, 0, err
		case found == nil:
			low = middle
		default:
			best, high = found, at
		}
	}
	if best != nil {
		best.trim(high)
	}
	return best, high, nil
}

// try returns stages that fit with a period, and the smallest period that they are seen to fit with; nil when none are found.
func (c *cutter) try(ctx context.Context, period float64) (*pipe, float64, error) {
	stages, err := c.cut(ctx, period)
	if err != nil || stages == nil {
		return nil, 0, err
	}
	if q := c.pipe(stages); q.fits(period) {
		return q, q.smallest(period), nil
	}
	return nil, 0, nil
}
