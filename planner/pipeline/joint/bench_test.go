package joint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// longChain is n layers as those of a convolutional network: sizes fall in steps, saved sets are a few times the outputs, weights grow.
func longChain(n int) *chain.Chain {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	c := &chain.Chain{Name: fmt.Sprintf("long-%d", n), InputBytes: 38 << 20}
	for l := range n {
		step := min(4*l/n, 3)
		a := int64(200<<20) >> step
		a += rng.Int64N(a / 4)
		ms := (5 + 10*rng.Float64()) * 1e-3
		c.Layers = append(c.Layers, chain.Layer{ForwardS: ms, BackwardS: 2 * ms, OutputBytes: a, SavedBytes: a * (2 + rng.Int64N(3)), GradientBytes: a,
			WeightBytes: int64(1<<19) << (2 * step)})
	}
	return c
}

// nodes is a platform of so many nodes of 8 devices.
func nodes(n int, memory int64) *pipeline.Platform {
	p := pipeline.NewPlatform(8*n, memory, 12e9)
	if n > 1 {
		p.Levels = []pipeline.Level{{Devices: 8, Bandwidth: 100e9}, {Devices: n, Bandwidth: 12e9}}
	}
	return p
}

// BenchmarkJoint: growth with the layers and the devices, from memory with room to memory in which nearly everything is recomputed.
func BenchmarkJoint(b *testing.B) {
	for _, n := range []int{28, 55, 110, 170} {
		for _, devices := range []int{1, 2, 4, 8} { // nodes
			for _, percent := range []int64{100, 20, 6} {
				c := longChain(n)
				k := pipeline.NewCosts(c)
				p := nodes(devices, k.Held(1, n, pipeline.Saved)*percent/100)
				b.Run(fmt.Sprintf("n=%d/devices=%d/memory=%d%%", n, p.Devices, percent), func(b *testing.B) {
					for b.Loop() {
						plan, err := solve(b.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}})
						if errors.Is(err, pipeline.ErrInfeasible) {
							b.Skip(err)
						}
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(plan.SecondsPerMinibatch()/plan.Predicted.LowerBound, "time/bound")
						b.ReportMetric(plan.SecondsPerMinibatch()*float64(p.Devices)/k.U(1, n), "time/ideal")
					}
				})
			}
		}
	}
}
