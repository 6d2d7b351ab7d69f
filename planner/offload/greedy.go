package offload

// offload-greedy: the first activations are offloaded, as many as have to be.
//
// Paper: A. Shilova, thesis, section 3.2.2: the optimum of the fully fractional relaxation (Theorem 8) with its last
// activation rounded up to a whole one. O(L) to choose, O(L^2) to place the prefetches.

import (
	"context"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func solveGreedy(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	return solve(ctx, "offload-greedy", p, func(_ context.Context, s *search) error {
		s.offer(s.greedySelection())
		return nil
	})
}

// greedySelection returns the fewest first activations that hold M_peak - M bytes.
func (k *costs) greedySelection() []bool {
	count := 0
	for k.below[count] < k.peak()-k.memory {
		count++
	}
	return k.first(count)
}

// first returns the selection of the first count activations; empty ones have nothing to move.
func (k *costs) first(count int) []bool {
	away := make([]bool, k.n)
	for i := range count {
		away[i] = k.saved[i] > 0
	}
	return away
}
