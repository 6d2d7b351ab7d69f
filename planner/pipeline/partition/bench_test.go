package partition

import (
	"context"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/pipeline/pipelinetest"
)

func star(r pipeline.Request) (*pipeline.Plan, error) {
	return periodic.Star(context.Background(), "test", r)
}

// deep is a chain of the size of the MadPipe paper's largest networks: activations shrink, weights grow.
func deep(layers int) *chain.Chain {
	rng := rand.New(rand.NewPCG(uint64(layers), 8))
	c := &chain.Chain{Name: "deep", InputBytes: 24 << 20}
	for l := range layers {
		share := 1 - float64(l)/float64(layers)
		out := int64((0.3 + rng.Float64()) * share * share * float64(200<<20))
		c.Layers = append(c.Layers, chain.Layer{
			Name: "layer", ForwardS: 0.001 + 0.004*rng.Float64(), BackwardS: 0.002 + 0.008*rng.Float64(),
			OutputBytes: out, SavedBytes: out, GradientBytes: out, WeightBytes: int64((1 - share) * rng.Float64() * float64(4<<20)),
		})
	}
	return c
}

func run(b *testing.B, name string, layers int, p *pipeline.Platform) {
	r := pipeline.Request{Chain: deep(layers), Platform: p}
	period := 0.0
	for b.Loop() {
		plan, err := solve(name, r)
		if err != nil {
			b.Fatal(err)
		}
		period = plan.SecondsPerMinibatch()
	}
	b.ReportMetric(period*1e3, "ms/minibatch")
}

func BenchmarkBalance(b *testing.B) { run(b, "balance", 110, pipeline.NewPlatform(8, 8<<30, 12e9)) }

func BenchmarkContiguous(b *testing.B) {
	run(b, "contiguous", 110, pipeline.NewPlatform(8, 4<<30, 12e9))
}

func BenchmarkPipeDream(b *testing.B) {
	run(b, "pipedream", 110, pipeline.NewPlatform(8, pipeline.NoLimit, 12e9))
}

func BenchmarkPipeDreamTwoLevels(b *testing.B) {
	run(b, "pipedream", 110, pipelinetest.WithLevels(pipeline.NoLimit, pipeline.Level{Devices: 8, Bandwidth: 30e9}, pipeline.Level{Devices: 2, Bandwidth: 3.125e9}))
}

func BenchmarkMadPipe(b *testing.B) { run(b, "madpipe", 110, pipeline.NewPlatform(8, 4<<30, 12e9)) }

func BenchmarkMadPipe170(b *testing.B) { run(b, "madpipe", 170, pipeline.NewPlatform(8, 6<<30, 12e9)) }
