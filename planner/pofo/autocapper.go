package pofo

// autocapper: capper at 40 limits M', evenly spaced from the real limit to store-all's peak; the fastest by simulation.
//
// Paper: A. Shilova, thesis, section 4.3. The first M' is the limit itself, so it is never slower than rotor-exact.
//
// Complexity: one frontier of rotor-exact answers all 40 limits.

import (
	"context"
	"errors"
	"math"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// limits of autocapper.
const cappers = 40

func solveAutocapper(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	c, err := newContest(p, 1)
	if err != nil {
		return nil, err
	}
	if err := c.capAll(ctx); err != nil {
		return nil, err
	}
	if len(c.best) > 0 {
		return c.winner("autocapper")
	}
	return nil, refuseAutocapper(ctx, p)
}

// capAll enters the sequences of all 40 limits.
func (c *contest) capAll(ctx context.Context) error {
	f, err := remat.ExactFrom(ctx, c.Chain, c.Memory)
	if err != nil {
		return err
	}
	high, err := storeAllPeak(c.Chain)
	if err != nil {
		return err
	}
	for i := range cappers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if seq, err := f.Sequence(capperLimit(c.Memory, high, i)); err == nil {
			c.cap(seq)
		}
	}
	return nil
}

// capperLimit returns the i-th M' for a limit.
func capperLimit(memory, high int64, i int) int64 {
	if memory >= high {
		return memory
	}
	return memory + int64(float64(high-memory)*float64(i)/(cappers-1))
}

// longestRefusal is the longest chain for which the smallest limit is looked for in the whole frontier.
const longestRefusal = 64

// refuseAutocapper finds the smallest limit: for every sequence of the frontier, the smallest limit in which it can be
// capped and whose M' include one that asks for it.
func refuseAutocapper(ctx context.Context, p strategy.Problem) error {
	if p.Chain.Len() > longestRefusal {
		seq := remat.StoreAll(p.Chain) // what capper makes of it is among the 40
		err := refuseCap("autocapper", p, seq, newCap(p.Chain, seq, 0).peak)
		if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
			small.Found = true
		}
		return err
	}
	f, err := remat.Exact(ctx, p.Chain)
	if err != nil {
		return err
	}
	high, err := storeAllPeak(p.Chain)
	if err != nil {
		return err
	}
	steps := f.Breakpoints()
	smallest := int64(math.MaxInt64)
	var best schedule.Sequence
	for k, step := range steps {
		seq, err := f.Sequence(step.Memory)
		if err != nil {
			return err
		}
		end := int64(math.MaxInt64)
		if k+1 < len(steps) {
			end = steps[k+1].Memory
		}
		least := max(newCap(p.Chain, seq, 0).peak, p.Memory+1)
		for i := range cappers {
			if m := asksFor(least, step.Memory, high, i); m < smallest && capperLimit(m, high, i) < end {
				smallest, best = m, seq
			}
		}
	}
	return refuseCap("autocapper", p, best, smallest)
}

// asksFor returns the smallest limit, at least least, whose i-th M' is at least wanted.
func asksFor(least, wanted, high int64, i int) int64 {
	low, up := least, max(least, wanted)
	for low < up {
		if mid := low + (up-low)/2; capperLimit(mid, high, i) >= wanted {
			up = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
