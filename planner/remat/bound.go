package remat

import "plimsoll/planner/internal/reruns"

// over bounds excesses from below. At the start of F^all_k, or of B_k, every ā_l, l < k, is in memory, or F_l runs again later and
// has one forward more than it must. The excess over the op's room costs at least the time of the cheapest forwards, fractions
// allowed: see package bound, which knows links. It returns the layers below the k for which that is most, and the bytes that do
// not fit there. O(n log n).
func (k *costs) over(limit int64) (best *reruns.Set, bytes float64) {
	again, saved := make([]float64, k.n+1), make([]float64, k.n+1)
	below := -float64(limit)
	for l := 1; l <= k.n; l++ {
		again[l], saved[l] = float64(k.repeat(l, l)), float64(k.saved[l])
		below += saved[l]
	}
	set, most := reruns.New(again, saved), 0.0
	best = set.Clone()
	for l := k.n; l >= 1; l-- {
		set.Remove(l)
		below -= saved[l]
		over := below + saved[l] + float64(max(k.forwardOver[l], k.grad[l]+k.grad[l-1]+k.backwardOver[l]))
		if time := set.Least(over); time > most {
			best, bytes, most = set.Clone(), over, time
		}
	}
	return best, bytes
}

// ceilings returns, at place(s, t), the excess of C(s, t) from which on it is of no use to a sequence of at most cut within limit
// bytes beside a_0. A sequence that runs B_t..B_s on their own, after F_s..F_t have run for B_n..B_{t+1} without saving, has the
// excess of that part, F_s..F_t, and the recomputation of layers outside s..t. O(n^2 log n).
func (k *costs) ceilings(limit, cut int64) []int64 {
	ceilings := make([]int64, k.n*(k.n+1)/2)
	whole, over := k.over(limit)
	for s := 1; s <= k.n; s++ {
		others, bytes := whole.Clone(), over
		for t := s; t < k.n; t++ {
			bytes -= others.Remove(t)
			ceilings[k.place(s, t)] = cut + 1 - k.repeat(s, t) - int64(others.Least(bytes))
		}
		ceilings[k.place(s, k.n)] = cut + 1
	}
	return ceilings
}
