package ilp

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/partition"
)

// warm: the plan that the search begins with, so that there is one when its time is over.

// start returns the best of contiguous and madpipe, or else one on an allocation on which one minibatch at a time fits. Errors:
// *pipeline.InfeasibleError when there is none, pipeline.ErrUnfinished when the time was over before that was known.
func (s *search) start(ctx context.Context) (*pipeline.Plan, error) {
	var best *pipeline.Plan
	enough := int64(0) // a memory at which one of the two has a plan
	for _, p := range partition.Strategies() {
		if p.Name != "contiguous" && p.Name != "madpipe" {
			continue
		}
		plan, err := s.timed(ctx, p)
		var small *pipeline.InfeasibleError
		switch {
		case errors.As(err, &small):
			if enough == 0 || small.Smallest < enough {
				enough = small.Smallest
			}
		case errors.Is(err, pipeline.ErrPlatform), errors.Is(err, context.DeadlineExceeded): // madpipe wants a link between any two
		case err != nil:
			return nil, err
		case best == nil || plan.Period < best.Period:
			best = plan
		}
	}
	if best == nil {
		return s.packed(ctx, enough)
	}
	best.Strategy = name
	return best, nil
}

// timed runs a strategy within the time of the search.
func (s *search) timed(ctx context.Context, p pipeline.Strategy) (*pipeline.Plan, error) {
	ctx, stop := context.WithDeadline(ctx, s.end)
	defer stop()
	return p.Solve(ctx, s.Request)
}

// packed returns a plan on an allocation that fits with one minibatch at a time. With a memory of enough, another strategy has a
// plan; 0: not known.
func (s *search) packed(ctx context.Context, enough int64) (*pipeline.Plan, error) {
	p, err := s.pack(ctx, s.Platform.Memory)
	if err != nil || p.excess > 0 && !p.proved {
		return nil, s.unfinished(err, enough)
	}
	if p.excess == 0 {
		return s.list(ctx, p.devices)
	}
	few, err := s.fewest(ctx)
	if err != nil && !stopped(err) {
		return nil, err
	}
	if err == nil && (enough == 0 || few.excess < enough) {
		enough = few.excess
	}
	return nil, &pipeline.InfeasibleError{
		Strategy: name, Smallest: enough,
		Reason: fmt.Sprintf("on every allocation some device lacks %s or more, with one minibatch at a time", units.ExactBytes(p.excess)),
	}
}

// unfinished returns the error of a search whose time was over before it knew whether anything fits.
func (s *search) unfinished(err error, enough int64) error {
	if err != nil && !stopped(err) {
		return err
	}
	advice := ""
	if enough > 0 {
		advice = fmt.Sprintf(", or the memory with which contiguous stages fit, %s for each device", units.ExactBytes(enough))
	}
	return fmt.Errorf("%s: %w: its limit of %v was over before it found an allocation that fits: give more time%s", name, pipeline.ErrUnfinished, s.limit, advice)
}
