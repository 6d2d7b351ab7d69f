package joint

import (
	"cmp"
	"math"
	"slices"

	"plimsoll/planner/chain"
)

// keeper answers how long a stage computes again, at least, if it keeps so many bytes of saved sets. The sets that save most seconds for their
// bytes are kept (a fractional knapsack).
//
// It is a persistent segment tree over the layers by that worth, with a version for each layer and those before it. The layers of a stage are
// the difference of two versions. A question takes O(log n).
type keeper struct {
	chain  *chain.Chain
	worthy []int     // layers, those first whose saved sets are worth most
	nodes  []kept    // node 0 has no layers
	roots  []int32   // by layer, from 0: no layers
	again  []float64 // seconds to compute all of the first layers again, by their number
}

// kept sums up the layers of a node.
type kept struct {
	left, right int32
	bytes       int64
	seconds     float64
}

func newKeeper(c *chain.Chain) *keeper {
	n := c.Len()
	k := &keeper{chain: c, nodes: make([]kept, 1), roots: make([]int32, n+1), again: make([]float64, n+1)}
	for l := range n {
		k.worthy = append(k.worthy, l+1)
	}
	worth := func(l int) float64 {
		if c.Layer(l).SavedBytes == 0 {
			return math.Inf(1) // it is always kept
		}
		return more(c.Layer(l)) / float64(c.Layer(l).SavedBytes)
	}
	slices.SortStableFunc(k.worthy, func(x, y int) int { return cmp.Compare(worth(y), worth(x)) })
	rank := make([]int, n+1)
	for i, l := range k.worthy {
		rank[l] = i
	}
	for l := 1; l <= n; l++ {
		k.again[l] = k.again[l-1] + more(c.Layer(l))
		k.roots[l] = k.with(k.roots[l-1], l, rank[l], 0, n)
	}
	return k
}

// with returns a node as another one of the ranks from low to high, with a layer more.
func (k *keeper) with(of int32, layer, rank, low, high int) int32 {
	x := k.nodes[of]
	x.bytes += k.chain.Layer(layer).SavedBytes
	x.seconds += more(k.chain.Layer(layer))
	if middle := (low + high) / 2; high-low > 1 {
		if rank < middle {
			x.left = k.with(x.left, layer, rank, low, middle)
		} else {
			x.right = k.with(x.right, layer, rank, middle, high)
		}
	}
	k.nodes = append(k.nodes, x)
	return int32(len(k.nodes) - 1)
}

// seconds returns for how long a stage of layers i to j computes again, at least. Between F and B, a minibatch holds so many bytes of saved sets.
func (k *keeper) seconds(i, j int, room float64) float64 {
	from, to := k.roots[i-1], k.roots[j]
	again := k.again[j] - k.again[i-1]
	low, high := 0, len(k.worthy)
	for high-low > 1 {
		a, b := &k.nodes[from], &k.nodes[to]
		middle := (low + high) / 2
		if bytes := float64(k.nodes[b.left].bytes - k.nodes[a.left].bytes); bytes <= room {
			room -= bytes
			again -= k.nodes[b.left].seconds - k.nodes[a.left].seconds
			low, from, to = middle, a.right, b.right
		} else {
			high, from, to = middle, a.left, b.left
		}
	}
	if layer := k.worthy[low]; i <= layer && layer <= j {
		part, of := 1.0, k.chain.Layer(layer)
		if bytes := float64(of.SavedBytes); bytes > room {
			part = room / bytes
		}
		again -= part * more(of)
	}
	return max(again, 0)
}

// more returns the extra time of a layer whose saved set is not kept: one more forward, which saves it or not.
func more(l *chain.Layer) float64 { return min(l.ForwardS, l.DiscardSeconds()) }
