// Package reruns bounds what is computed again: the least time of forwards whose saved sets hold so many bytes.
package reruns

import (
	"cmp"
	"math/bits"
	"slices"
)

// Set is a set of layers. It answers R of package bound: the least time of forwards that save a given number of bytes, fractions
// allowed. It is a Fenwick tree over the layers, by rising time of a forward for each byte of ā.
type Set struct {
	again, saved []float64
	slack        float64 // more than what rounding adds
	order        []int   // layers that save something
	rank         []int   // of a layer in the order, from 1; 0: it is not in the set
	sums         []sum   // entry i-1 has those of the i&-i layers up to the i-th
}

type sum struct{ bytes, time float64 }

// New takes the time of another forward and ā of layers 0, 1, ...; those that save something are the set. O(n log n).
func New(again, saved []float64) *Set {
	r := &Set{again: again, saved: saved, rank: make([]int, len(saved))}
	for l, bytes := range saved {
		if bytes > 0 {
			r.order = append(r.order, l)
		}
	}
	slices.SortStableFunc(r.order, func(x, y int) int { return cmp.Compare(again[x]*saved[y], again[y]*saved[x]) })
	r.sums = make([]sum, len(r.order))
	for i, l := range r.order {
		r.rank[l] = i + 1
		r.add(l, 1)
		r.slack += 1e-9 * again[l]
	}
	return r
}

// Clone returns a set of its own.
func (r *Set) Clone() *Set {
	c := *r
	c.rank, c.sums = slices.Clone(r.rank), slices.Clone(r.sums)
	return &c
}

// Remove takes a layer out and returns its bytes, 0 when it is not in the set. O(log n).
func (r *Set) Remove(l int) (bytes float64) {
	if r.rank[l] == 0 {
		return 0
	}
	r.add(l, -1)
	r.rank[l] = 0
	return r.saved[l]
}

func (r *Set) add(l int, sign float64) {
	for i := r.rank[l]; i <= len(r.sums); i += i & -i {
		r.sums[i-1].bytes += sign * r.saved[l]
		r.sums[i-1].time += sign * r.again[l]
	}
}

// Least returns R(bytes), or a little less; the time of the whole set when that holds less. O(log n).
func (r *Set) Least(bytes float64) float64 {
	if bytes <= 0 {
		return 0
	}
	at, time := 0, 0.0
	for half := 1 << bits.Len(uint(len(r.sums))); half > 0; half /= 2 {
		if next := at + half; next <= len(r.sums) && r.sums[next-1].bytes <= bytes {
			at, bytes, time = next, bytes-r.sums[next-1].bytes, time+r.sums[next-1].time
		}
	}
	if at < len(r.sums) {
		l := r.order[at]
		time += r.again[l] * min(1, bytes/r.saved[l])
	}
	return max(0, time-r.slack)
}
