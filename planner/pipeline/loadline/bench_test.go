package loadline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// longChain is n layers as those of a convolutional network: sizes fall in steps, saved sets are a few times the outputs,
// weights grow. Sizes are bytes of a batch of a few images, times milliseconds.
func longChain(n int) *chain.Chain {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	c := &chain.Chain{Name: fmt.Sprintf("long-%d", n), InputBytes: 38 << 20}
	for l := range n {
		step := min(4*l/n, 3)
		a := int64(200<<20) >> step
		a += rng.Int64N(a / 4)
		ms := (0.5 + rng.Float64()) * 1e-3
		c.Layers = append(c.Layers, chain.Layer{ForwardS: ms, BackwardS: 2 * ms, OutputBytes: a, SavedBytes: a * (2 + rng.Int64N(3)), GradientBytes: a,
			WeightBytes: int64(1<<16) << (2 * step)})
	}
	return c
}

// BenchmarkLoadline: 8 devices, from memory with room to memory in which nearly everything is recomputed.
func BenchmarkLoadline(b *testing.B) { benchmark(b, 0) }

// BenchmarkOffload: the same with a link to the host.
func BenchmarkOffload(b *testing.B) { benchmark(b, 12e9) }

func benchmark(b *testing.B, host float64) {
	for _, n := range []int{40, 100, 170} {
		c := longChain(n)
		k := pipeline.NewCosts(c)
		for _, percent := range []int64{100, 40, 15, 6} {
			p := pipeline.NewPlatform(8, k.Held(1, n, pipeline.Saved)*percent/100, 12e9)
			p.Host = host
			b.Run(fmt.Sprintf("n=%d/memory=%d%%", n, percent), func(b *testing.B) {
				for b.Loop() {
					plan, err := Contiguous(b.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}})
					if errors.Is(err, pipeline.ErrInfeasible) {
						b.Skip(err)
					}
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(plan.Period/(k.U(1, n)/8), "period/ideal")
				}
			})
		}
	}
}
