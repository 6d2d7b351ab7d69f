package pofo

import "math"

// leastSegments returns, for each s <= t, the least memory beside the input of s in which B_t..B_s can be run from it:
// Theorem 6 without times. O(n^3).
func (k *costs) leastSegments() func(s, t int) float64 {
	table := make([]float64, (k.n+1)*(k.n+1))
	at := func(s, t int) *float64 { return &table[s*(k.n+1)+t] }
	for d := range k.n {
		for s := 1; s+d <= k.n; s++ {
			t := s + d
			best := max(k.grad[t]+k.needAll[s], k.needBack[s])
			if s < t {
				best = max(best, k.saved[s]+*at(s+1, t))
			}
			need := 0.0
			for x := s; x < t; x++ {
				need = max(need, k.grad[t]+k.needForward(s, x))
				best = min(best, max(need, *at(s, x), k.a[x]+*at(x+1, t)))
			}
			*at(s, t) = best
		}
	}
	return func(s, t int) float64 { return *at(s, t) }
}

// least returns the smallest limit at which pofo has a solution: every input that leaves is offloaded, and waiting is
// always possible, so neither times nor the bandwidth matter. O(n^3).
func (k *costs) least() int64 {
	segment := k.leastSegments()
	var rest [2][]float64 // least memory of s..n when nothing else is stored, by what the input of s is
	for x := range rest {
		rest[x] = make([]float64, k.n+1)
		rest[x][k.n] = k.input(k.n, x == 1) + max(k.needAll[k.n], k.needBack[k.n])
	}
	for s := k.n - 1; s >= 1; s-- {
		for x := range rest {
			in := k.input(s, x == 1)
			best := max(in+k.needAll[s], in+k.needBack[s], rest[1][s+1])
			need := in + k.needForward(s, s)
			for t := s; t < k.n; t++ {
				if t > s {
					need = max(need, k.needForward(s, t))
				}
				best = min(best, max(need, in+segment(s, t), rest[0][t+1]))
			}
			rest[x][s] = best
		}
	}
	return int64(math.Ceil(rest[0][1]))
}
