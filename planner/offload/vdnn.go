package offload

// vdnn: the inputs of slow forwards are offloaded, all of them or every other one.
//
// Paper: vDNN++ offloads the inputs of all convolutions or of every other one, because convolutions are slow enough to
// hide a transfer. Layers here are not annotated, so, as in the thesis of A. Shilova, section 3.4.1, a forward counts
// as slow when u_F per byte of its input is at least a threshold; every threshold is tried and the best kept.
// O(L^2) selections' costs, each O(L) simulations at most.

import (
	"context"
	"slices"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func solveVDNN(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	return solve(ctx, "vdnn", p, func(ctx context.Context, s *search) error {
		for _, threshold := range s.ratios() {
			if err := ctx.Err(); err != nil {
				return err
			}
			slow := s.slow(threshold)
			s.offer(slow)
			s.offer(everyOther(slow))
		}
		return nil
	})
}

// ratio returns the seconds of the forward per byte of its input ā_i, which is not empty.
func (k *costs) ratio(i int) float64 { return k.uF[i+1] / k.saved[i] }

// ratios returns every threshold, the highest, which offloads the least, first.
func (k *costs) ratios() []float64 {
	var all []float64
	for i := range k.n {
		if k.saved[i] > 0 {
			all = append(all, k.ratio(i))
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return slices.Compact(all)
}

// slow returns the selection of all activations whose ratio is at least the threshold.
func (k *costs) slow(threshold float64) []bool {
	away := make([]bool, k.n)
	for i := range away {
		away[i] = k.saved[i] > 0 && k.ratio(i) >= threshold
	}
	return away
}

// everyOther returns the first, third, ... of a selection.
func everyOther(away []bool) []bool {
	half := slices.Clone(away)
	take := true
	for i := range half {
		if half[i] {
			half[i], take = take, !take
		}
	}
	return half
}
