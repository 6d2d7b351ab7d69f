package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plimsoll/planner/chain"
)

// ErrBatch is returned when no batch size of a chain makes the step that is asked for.
var ErrBatch = errors.New("no batch size of the chain fits")

// SolveSizes lets a strategy plan a chain at each of its batch sizes. It returns the plan that trains most samples a second, which says its
// batch size, and the chain at that size. Of equal plans it takes the one of the smaller size. Steps of schedules with a flush have batch
// samples, in microbatches of the size. Sizes that do not divide batch are left out, and so are sizes with other microbatches than the
// request's. For all other schedules batch is 0. Errors: ErrBatch; where no size has a plan, the *InfeasibleError of the smallest; an
// *UnfinishedError comes with the best plan.
func SolveSizes(ctx context.Context, s Strategy, r Request, batch int) (*Plan, *chain.Chain, error) {
	var best *Plan
	var of *chain.Chain
	var failure, unfinished error
	sizes := r.Chain.Sizes()
	for _, c := range sizes {
		one := r
		one.Chain = c
		if s.Type == Flushing {
			if one.Microbatches = r.microbatchesOf(c, batch); one.Microbatches == 0 {
				continue
			}
		}
		p, err := s.Solve(ctx, one)
		if late, ok := errors.AsType[*UnfinishedError](err); ok && late.Best != nil {
			p, unfinished, err = late.Best, err, nil
		}
		switch {
		case errors.As(err, new(*InfeasibleError)):
			if failure == nil {
				failure = err
			}
			continue
		case err != nil:
			return nil, nil, err
		}
		p.Batch = c.Batch
		if best == nil || samplesPerSecond(c, r.Platform, p) > samplesPerSecond(of, r.Platform, best) {
			best, of = p, c
		}
	}
	switch {
	case best == nil && failure == nil:
		return nil, nil, fmt.Errorf("%w: a step of %d samples has no whole number of microbatches%s of %s", ErrBatch, batch, wanted(r.Microbatches), batches(sizes))
	case best == nil:
		return nil, nil, failure
	}
	return best, of, unfinished
}

// microbatchesOf returns how many microbatches of a chain's batch size make a step of batch samples; 0 where none do, or the request says
// another number.
func (r Request) microbatchesOf(c *chain.Chain, batch int) int {
	if c.Batch == 0 || batch%c.Batch != 0 || r.Microbatches != 0 && r.Microbatches != batch/c.Batch {
		return 0
	}
	return batch / c.Batch
}

// samplesPerSecond is how fast a plan trains that says its batch size.
func samplesPerSecond(c *chain.Chain, on *Platform, p *Plan) float64 {
	return float64(p.Batch) / StepSeconds(c, on, p)
}

// wanted says how many microbatches a request asks for.
func wanted(microbatches int) string {
	if microbatches == 0 {
		return ""
	}
	return fmt.Sprintf(", %d,", microbatches)
}

// batches lists batch sizes.
func batches(all []*chain.Chain) string {
	var list []string
	for _, c := range all {
		list = append(list, fmt.Sprint(c.Batch))
	}
	return strings.Join(list, " or ")
}
