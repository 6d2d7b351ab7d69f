package loadline

import (
	"math/rand/v2"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// randomChain is a chain of n layers with small whole numbers.
func randomChain(rng *rand.Rand, n int) *chain.Chain {
	c := &chain.Chain{Name: "random", InputBytes: rng.Int64N(12)}
	for range n {
		a := rng.Int64N(12)
		l := chain.Layer{ForwardS: float64(rng.IntN(6)), BackwardS: float64(rng.IntN(9)), OutputBytes: a, SavedBytes: a + rng.Int64N(40),
			GradientBytes: rng.Int64N(6), WeightBytes: rng.Int64N(3)}
		if rng.IntN(2) == 0 {
			l.ForwardOverheadBytes, l.BackwardOverheadBytes = rng.Int64N(5), rng.Int64N(5)
		}
		if rng.IntN(3) == 0 {
			seconds, bytes := float64(rng.IntN(6)), rng.Int64N(5)
			l.DiscardForwardS, l.DiscardOverheadBytes = &seconds, &bytes
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

// randomPlatform has up to four devices, alike or not.
func randomPlatform(rng *rand.Rand, c *chain.Chain) *pipeline.Platform {
	most := int64(0)
	for l := 1; l <= c.Len(); l++ {
		most += c.Activation(l-1) + c.Saved(l) + c.Gradient(l) + 3*c.Layer(l).WeightBytes
	}
	p := pipeline.NewPlatform(1+rng.IntN(4), 0, pipeline.Free())
	switch rng.IntN(3) {
	case 0:
		p.Bandwidth = float64(1 + rng.IntN(20))
	case 1:
		p.NoBuffers = true
	}
	share := 0.25 + 0.7*rng.Float64()
	alike := rng.IntN(2) == 0
	for d := range p.Memory {
		if d > 0 && alike {
			p.Memory[d] = p.Memory[0]
			continue
		}
		p.Memory[d] = int64(share * (0.7 + 0.6*rng.Float64()) * float64(most))
	}
	return p
}
