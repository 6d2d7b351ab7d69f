package chain

import (
	"cmp"
	"slices"
)

// Sizes returns the chain at each batch size that it was measured at, the smallest first; none of them has others.
func (c *Chain) Sizes() []*Chain {
	first := *c
	first.Others = nil
	all := append([]*Chain{&first}, c.Others...)
	slices.SortStableFunc(all, func(a, b *Chain) int { return cmp.Compare(a.Batch, b.Batch) })
	return all
}

// At returns the chain at a batch size; one that was measured at one size alone is itself, whatever that is. nil: it was measured at others.
func (c *Chain) At(batch int) *Chain {
	if len(c.Others) == 0 {
		return c
	}
	for _, x := range c.Sizes() {
		if x.Batch == batch {
			return x
		}
	}
	return nil
}
