package validate

import (
	"math/rand/v2"
	"slices"

	"plimsoll/planner/chain"
)

// Drawn returns a chain whose layers take times drawn at random, whole milliseconds: 1 to 8 forward, 2 to 16 backward, of which
// either half takes half. The same seed gives the same times.
func Drawn(c *chain.Chain, seed uint64) *chain.Chain {
	rnd := rand.New(rand.NewPCG(seed, 1))
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for i := range out.Layers {
		l := &out.Layers[i]
		l.ForwardS, l.BackwardS = 1e-3*float64(1+rnd.IntN(8)), 1e-3*float64(2+rnd.IntN(15))
		half := l.BackwardS / 2
		l.DiscardForwardS, l.BackwardInputS, l.BackwardWeightS = nil, &half, &half
	}
	return &out
}
