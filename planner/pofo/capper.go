package pofo

// capper: a rematerialization for a limit M' above the real one, M, of which activations are offloaded until it fits. While the peak is
// above M, it offloads the activation with the lowest index that is stored at the peak and not in use.
//
// Paper: A. Shilova, thesis, section 4.3. With M' at store-all's peak, the default, nothing is computed again and it is
// the greedy heuristic of section 3.2, where any op may be the peak. Peaks count transfers as done; the simulation waits for them.
//
// Complexity: that of rotor-exact, then O(n) ops for each of O(n) offloads.

import (
	"context"
	"fmt"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/improve"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func solveCapper(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	high, err := storeAllPeak(p.Chain)
	if err != nil {
		return nil, err
	}
	if p.HighMemory != 0 {
		high = p.HighMemory
	}
	if high < p.Memory && p.HighMemory != 0 {
		return nil, fmt.Errorf("%w: a higher limit of %s: capper takes one of at least the limit, %s", ErrOptions, units.Precise(high), units.Precise(p.Memory))
	}
	f, err := remat.ExactFrom(ctx, p.Chain, max(high, p.Memory))
	if err != nil {
		return nil, err
	}
	seq, err := f.Sequence(max(high, p.Memory))
	if err != nil {
		return nil, err
	}
	if least := newCap(p.Chain, seq, 0).peak; least > p.Memory {
		return nil, refuseCap("capper", p, seq, least)
	}
	c, err := newContest(p, 1)
	if err != nil {
		return nil, err
	}
	c.cap(seq)
	return c.winner("capper")
}

// storeAllPeak returns M^high of the thesis.
func storeAllPeak(c *chain.Chain) (int64, error) {
	r, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return 0, err
	}
	return r.Peak, nil
}

// cap enters what a rematerialization becomes when it is offloaded until it fits.
func (c *contest) cap(seq schedule.Sequence) {
	if k := newCap(c.Chain, seq, c.Memory); k.peak <= c.Memory {
		c.place(seq, k.gaps, lossOf(c.Chain, seq)+1)
	}
}

// lossOf returns the position of the first F^all_n.
func lossOf(c *chain.Chain, seq schedule.Sequence) int {
	for i, op := range seq {
		if op.Layer == c.Len() {
			return i
		}
	}
	return len(seq)
}

// capped is a choice of gaps, and the peak that is left.
type capped struct {
	gaps []improve.Gap
	peak int64
}

// newCap offloads from a sequence of compute ops until its peak is at most the limit, or nothing more helps.
func newCap(c *chain.Chain, seq schedule.Sequence, limit int64) capped {
	var k capped
	var meter improve.Meter
	open := improve.Gaps(c, seq)
	for {
		at := 0
		k.peak = 0
		for i, m := range meter.Memory(c, seq, k.gaps) {
			if m > k.peak {
				k.peak, at = m, i
			}
		}
		best := -1
		for i, g := range open {
			if g.From < at && at < g.To && (best < 0 || g.Layer < open[best].Layer) {
				best = i
			}
		}
		if k.peak <= limit || best < 0 {
			return k
		}
		k.gaps = append(k.gaps, open[best])
		open = append(open[:best], open[best+1:]...)
	}
}

// refuseCap returns the error for a limit below the smallest, at which seq is offloaded.
func refuseCap(name string, p strategy.Problem, seq schedule.Sequence, smallest int64) error {
	at := p
	at.Memory = smallest
	c, err := newContest(at, 1)
	if err != nil {
		return err
	}
	c.cap(seq)
	best, err := c.winner(name)
	if err != nil {
		return err
	}
	return infeasible(name, p, smallest, best)
}
