package loadline

import (
	"math"
	"slices"
)

// hopeful reports whether there are stages that may fit when they offload. Each is taken as it is, or with no more than its
// weights, its buffers, and what the backward of one layer needs.
func (c *cutter) hopeful() bool {
	work := make([]int64, c.costs.Len()+1)
	for l := 1; l < len(work); l++ {
		layer := c.Chain.Layer(l)
		work[l] = c.Chain.Activation(l-1) + layer.SavedBytes + c.Chain.Gradient(l) + c.Chain.Gradient(l-1) + layer.BackwardOverheadBytes
	}
	return c.minimax(func(d, first, last int) int64 {
		need := min(c.need.Bytes(0, first, last, 1), c.static(first, last, 1)+slices.Max(work[first:last+1]))
		return max(0, need-c.Platform.Memory[d])
	}) == 0
}

// smallest returns the smallest memory of each device at which some stages fit, with one live minibatch each.
func (c *cutter) smallest() int64 {
	return c.minimax(func(d, first, last int) int64 { return c.fewest(first, last) })
}

// possible reports whether some stages fit with one live minibatch each.
func (c *cutter) possible() bool {
	return c.minimax(func(d, first, last int) int64 {
		if c.fewest(first, last) <= c.Platform.Memory[d] {
			return 0
		}
		return 1
	}) == 0
}

// fewest returns the least bytes of a stage.
func (c *cutter) fewest(first, last int) int64 {
	return min(c.need.Bytes(0, first, last, 1), c.fixed(first, last, 1)+c.seqs.Least(first, last))
}

// minimax returns the smallest possible largest cost of a stage. O(P² n²).
func (c *cutter) minimax(cost func(d, first, last int) int64) int64 {
	n := c.costs.Len()
	table := make([][]int64, len(c.next))
	smallest := int64(math.MaxInt64)
	for d := len(c.next) - 1; d >= 0; d-- {
		table[d] = make([]int64, n+2)
		for first := n; first >= 1; first-- {
			table[d][first] = math.MaxInt64
			for last := first; last <= n; last++ {
				rest := int64(0)
				if last < n {
					rest = math.MaxInt64
					for _, e := range c.next[d] {
						rest = min(rest, table[e][last+1])
					}
				}
				table[d][first] = min(table[d][first], max(rest, cost(d, first, last)))
			}
		}
		smallest = min(smallest, table[d][1])
	}
	return smallest
}
