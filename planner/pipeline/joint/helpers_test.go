package joint

import (
	"math/rand/v2"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// request is a random chain and up to so many devices, alike or not, with memory for a part of what the chain needs, at most.
func request(rng *rand.Rand, layers, devices int) pipeline.Request {
	c := pipelinetest.Chain(rng, 1+rng.IntN(layers), rng.IntN(2) == 0)
	most := int64(0)
	for i := range c.Layers {
		l := &c.Layers[i]
		l.SavedBytes += rng.Int64N(40)
		if l.WeightBytes = rng.Int64N(3); rng.IntN(3) == 0 {
			l.WeightBytes = rng.Int64N(12)
		}
		if rng.IntN(3) == 0 {
			seconds, bytes := l.ForwardS/2, rng.Int64N(5)
			l.DiscardForwardS, l.DiscardOverheadBytes = &seconds, &bytes
		}
		most += c.Activation(i) + c.Saved(i+1) + c.Gradient(i+1) + 3*l.WeightBytes
	}
	p := pipelinetest.Platform(rng, 1+rng.IntN(devices))
	share := 0.25 + rng.Float64()
	p = p.WithMemory(int64(share * float64(most)))
	if rng.IntN(3) == 0 {
		p.Memory[rng.IntN(p.Devices)] /= 2
	}
	r := pipeline.Request{Chain: c, Platform: p}
	r.Accounting = []pipeline.Accounting{"", pipeline.Saved, pipeline.Saved}[rng.IntN(3)]
	r.Versions = []pipeline.Versions{"", pipeline.Stash, pipeline.Latest}[rng.IntN(3)]
	return r
}
