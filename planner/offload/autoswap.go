package offload

// autoswap: activations are offloaded in the order of a weighted sum of four scores, until the rest fits.
//
// Paper: AutoSwap scores a variable by four measures:
//
//   - DOA, its duration of absence, from its last access in the forward phase to its first one in the backward phase,
//     less both transfers
//   - AOA, its area of absence: DOA times its size
//   - WDOA, its weighted duration of absence: the memory load, summed over its absence
//   - SWDOA: WDOA with the load that the variables chosen before leave
//
// The scores come from store-all's timeline, each scaled to at most 1. The paper finds the weights by Bayesian
// optimization; the thesis of A. Shilova, section 3.4.1, finds that erratic. Here every sum of quarters is tried and
// the best kept: no randomness. O(L^2) for each of 35 weights, and O(L) simulations.

import (
	"context"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func solveAutoSwap(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	return solve(ctx, "autoswap", p, func(ctx context.Context, s *search) error {
		scores := newScores(s.costs)
		for _, w := range quarters() {
			if err := ctx.Err(); err != nil {
				return err
			}
			s.offer(s.byScore(scores, w))
		}
		return nil
	})
}

// weights are the weights of the scores DOA, AOA, WDOA and SWDOA.
type weights [4]float64

// quarters returns all weights that are multiples of a quarter and add up to 1.
func quarters() (all []weights) {
	const parts = 4
	for a := range parts + 1 {
		for b := range parts + 1 - a {
			for c := range parts + 1 - a - b {
				d := parts - a - b - c
				all = append(all, weights{float64(a) / parts, float64(b) / parts, float64(c) / parts, float64(d) / parts})
			}
		}
	}
	return all
}

// scores holds the four scores of every activation. Absences are nested: that of i holds that of i+1.
type scores struct {
	absence []float64 // seconds, transfers included
	size    []float64
	doa     []float64
	aoa     []float64
	wdoa    []float64 // bytes·seconds
}

func newScores(k *costs) *scores {
	s := &scores{size: k.saved[:k.n]}
	absence, load := make([]float64, k.n), make([]float64, k.n)
	for i := k.n - 2; i >= 0; i-- { // between F_{i+1} and B_{i+1} are F_{i+2}, B_{i+2} and the absence of i+1
		l := i + 2
		absence[i] = absence[i+1] + k.uF[l] + k.uB[l]
		load[i] = load[i+1] + (k.needF[l]+k.below[l])*k.uF[l] + (k.needB[l]+k.below[l])*k.uB[l]
	}
	s.absence, s.wdoa = absence, load
	for i, size := range s.size {
		doa := absence[i] - 2*size/k.bandwidth
		area := doa * size
		if doa < 0 && size > 0 {
			area = doa / size // the larger it is, the less it loses
		}
		s.doa, s.aoa = append(s.doa, doa), append(s.aoa, area)
	}
	return s
}

// byScore picks activations, the best one first, until every op fits.
func (s *search) byScore(c *scores, w weights) []bool {
	away := make([]bool, s.n)
	left := append([]float64(nil), c.wdoa...) // SWDOA
	scale := weights{scaleOf(c.doa), scaleOf(c.aoa), scaleOf(c.wdoa), scaleOf(c.wdoa)}
	for !s.fits(away) {
		best, most := -1, 0.0
		for i := range away {
			sum := w[0]*c.doa[i]*scale[0] + w[1]*c.aoa[i]*scale[1] + w[2]*c.wdoa[i]*scale[2] + w[3]*left[i]*scale[3]
			if !away[i] && c.size[i] > 0 && (best < 0 || sum > most) {
				best, most = i, sum
			}
		}
		away[best] = true
		c.relieve(left, best)
	}
	return away
}

// relieve takes from the load that is summed over each absence what activation gone frees while both are absent.
func (c *scores) relieve(left []float64, gone int) {
	for i := range left {
		left[i] -= c.size[gone] * c.absence[max(i, gone)]
	}
}

// scaleOf returns the factor that scales the largest score to 1; 0 when none is above 0.
func scaleOf(x []float64) float64 {
	most := 0.0
	for _, v := range x {
		most = max(most, v)
	}
	if most == 0 {
		return 0
	}
	return 1 / most
}
