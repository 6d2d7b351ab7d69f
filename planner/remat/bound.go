package remat

import (
	"cmp"
	"math/bits"
	"slices"
)

// reruns bounds excesses from below. At the start of F^all_k, or of B_k, every ā_l, l < k, is in memory, or F_l runs again later and
// has one forward more than it must. What does not fit beside what the op needs is at least the time of the cheapest forwards,
// fractions allowed: see package bound, which knows links. Here k is the layer for which that is most.
type reruns struct {
	*costs
	order []int // layers below k that save something, by the time of a forward for each byte of ā, rising
	rank  []int // of a layer in the order, none
	bytes int64 // what does not fit
}

const none = -1

// newReruns bounds sequences within limit bytes beside a_0. O(n^2).
func (k *costs) newReruns(limit int64) *reruns {
	all := &reruns{costs: k}
	for l := 1; l <= k.n; l++ {
		if k.saved[l] > 0 {
			all.order = append(all.order, l)
		}
	}
	slices.SortStableFunc(all.order, all.compare)
	best, most, below := &reruns{costs: k}, int64(0), int64(0)
	for l := 1; l <= k.n; l++ {
		need := k.saved[l] + max(k.forwardOver[l], k.grad[l]+k.grad[l-1]+k.backwardOver[l])
		now := &reruns{costs: k, bytes: below + need - limit}
		below += k.saved[l]
		if now.bytes <= 0 {
			continue
		}
		for _, i := range all.order {
			if i < l {
				now.order = append(now.order, i)
			}
		}
		if ticks := now.least(); ticks > most {
			best, most = now, ticks
		}
	}
	return best
}

// compare compares the times of a forward for each byte of ā of two layers.
func (r *reruns) compare(x, y int) int {
	high1, low1 := bits.Mul64(uint64(r.repeat(x, x)), uint64(r.saved[y]))
	high2, low2 := bits.Mul64(uint64(r.repeat(y, y)), uint64(r.saved[x]))
	return cmp.Or(cmp.Compare(high1, high2), cmp.Compare(low1, low2))
}

// least returns an excess that no sequence is below.
func (r *reruns) least() int64 { return r.newTree().least(r.bytes) }

// ceilings returns, at place(s, t), the excess of C(s, t) from which on it is of no use to a sequence of at most cut within limit
// bytes beside a_0. A sequence that runs B_t..B_s on their own, after F_s..F_t have run for B_n..B_{t+1} without saving, has the
// excess of that part, F_s..F_t, and what the layers outside s..t must run again. O(n^2 log n).
func (k *costs) ceilings(limit, cut int64) []int64 {
	ceilings := make([]int64, k.n*(k.n+1)/2)
	r := k.newReruns(limit)
	whole := r.newTree()
	for s := 1; s <= k.n; s++ {
		tree, bytes := whole.clone(), r.bytes
		for t := s; t < k.n; t++ {
			bytes -= tree.remove(t)
			ceilings[k.place(s, t)] = cut + 1 - k.repeat(s, t) - tree.least(bytes)
		}
		ceilings[k.place(s, k.n)] = cut + 1
	}
	return ceilings
}

// tree sums bytes and ticks over the order: entry i-1 those of the i&-i layers up to the i-th.
type tree struct {
	*reruns
	sums []sum
}

type sum struct{ bytes, ticks int64 }

func (r *reruns) newTree() *tree {
	t := &tree{r, make([]sum, len(r.order))}
	r.rank = slices.Repeat([]int{none}, r.n+1)
	for i, l := range r.order {
		r.rank[l] = i
		t.add(l, 1)
	}
	return t
}

func (t *tree) clone() *tree { return &tree{t.reruns, slices.Clone(t.sums)} }

func (t *tree) add(l int, sign int64) {
	for i := t.rank[l] + 1; i <= len(t.sums); i += i & -i {
		t.sums[i-1].bytes += sign * t.saved[l]
		t.sums[i-1].ticks += sign * t.repeat(l, l)
	}
}

// remove takes a layer out and returns its bytes, 0 when it is none of them.
func (t *tree) remove(l int) int64 {
	if t.rank[l] == none {
		return 0
	}
	t.add(l, -1)
	return t.saved[l]
}

// least returns the least time of forwards whose saved sets hold so many bytes, rounded down.
func (t *tree) least(bytes int64) (ticks int64) {
	if bytes <= 0 {
		return 0
	}
	at := 0
	for half := 1 << bits.Len(uint(len(t.sums))); half > 0; half /= 2 {
		if next := at + half; next <= len(t.sums) && t.sums[next-1].bytes <= bytes {
			at, bytes, ticks = next, bytes-t.sums[next-1].bytes, ticks+t.sums[next-1].ticks
		}
	}
	if at == len(t.sums) {
		return ticks
	}
	l := t.order[at]
	high, low := bits.Mul64(uint64(t.repeat(l, l)), uint64(bytes))
	part, _ := bits.Div64(high, low, uint64(t.saved[l]))
	return ticks + int64(part)
}
