package pofo

import (
	"math"

	"plimsoll/planner/internal/reruns"
)

// rest bounds what a plan must compute again after the loss. When B_n starts, every ā_l is on the device, on the host, or its
// F^all_l runs later and has one forward more than it must. See package bound, whose proof holds here, too, where memory goes
// piece by piece.
type rest struct {
	set  *reruns.Set
	over float64 // bytes that are not on the device
}

// rests returns the bounds of layers s..n-1 for each s, when nothing of the layers before s is in memory.
func (k *costs) rests(limit float64) []rest {
	again, saved := make([]float64, k.n), make([]float64, k.n)
	for l := 1; l < k.n; l++ {
		again[l], saved[l] = min(k.again[l]-k.again[l-1], k.all[l]), k.saved[l]
		if l == k.n-1 {
			saved[l] -= k.a[l] // the input of the loss stays
		}
	}
	all := make([]rest, k.n+1)
	now := rest{reruns.New(again, saved), k.needBack[k.n] + k.a[k.n-1] - limit}
	for _, bytes := range saved {
		now.over += bytes
	}
	for s := 1; s <= k.n; s++ {
		all[s] = rest{now.set.Clone(), now.over}
		if s < k.n {
			now.set.Remove(s)
			now.over -= k.saved[s]
		}
	}
	return all
}

// least returns the least time of recomputation when stored more bytes are on the device. Without recomputation B_n must start
// the given time, late, from now.
func (r rest) least(stored, late float64) (time float64) {
	for range 8 { // the link moves as many bytes as it has time
		next := r.set.Least(r.over + stored - max(0, late-time))
		if next <= time {
			break
		}
		time = next
	}
	return time
}

// ceilings returns, at place(s, t), by how much B_t..B_s, run on their own after F_s..F_t ran without saving, may exceed must
// within a plan that takes excess longer than must. These forwards and the recomputation of other layers are subtracted. O(n^2
// log n).
func (g *segments) ceilings() []float64 {
	ceilings := make([]float64, g.n*(g.n+1)/2)
	whole := g.rests(g.limit)[1]
	late := g.must(1, g.n) + g.excess - g.restBack[1]
	for s := 1; s < g.n; s++ {
		others := rest{whole.set.Clone(), whole.over}
		for t := s; t < g.n; t++ {
			others.over -= others.set.Remove(t)
			again := g.again[t] - g.again[s-1]
			ceilings[g.place(s, t)] = g.excess - again
			if !math.IsInf(g.excess, 1) {
				ceilings[g.place(s, t)] -= others.least(0, late-again)
			}
		}
	}
	return ceilings
}
