package remat

// store-all: every F^all, then every B: the fastest sequence of all, and the one that needs the most memory.
//
// Deep learning frameworks run this sequence when nobody asks for anything else. Time: O(n).

import (
	"context"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// StoreAll returns F^all_1..F^all_n, B_n..B_1.
func StoreAll(c *chain.Chain) schedule.Sequence {
	seq := make(schedule.Sequence, 0, 2*c.Len())
	for l := 1; l <= c.Len(); l++ {
		seq = append(seq, all(l))
	}
	for l := c.Len(); l >= 1; l-- {
		seq = append(seq, backward(l))
	}
	return seq
}

func solveStoreAll(_ context.Context, p strategy.Problem) (schedule.Sequence, error) {
	return checked("store-all", p, StoreAll(p.Chain))
}

// checked returns the sequence, or *pipeline.InfeasibleError when its peak is over the limit.
func checked(name string, p strategy.Problem, seq schedule.Sequence) (schedule.Sequence, error) {
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return nil, err
	}
	if r.Peak > p.Memory {
		return nil, infeasible(name, p.Chain, p.Memory, r.Peak, seq)
	}
	return seq, nil
}
