package periodic

import (
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// bench is 110 layers in equal stages on 8 devices, the scale of the MadPipe paper, with a memory that binds.
func bench(b *testing.B) pipeline.Request {
	rng := rand.New(rand.NewPCG(110, 8))
	c := &chain.Chain{Name: "110 layers", InputBytes: 24 << 20}
	for range 110 {
		c.Layers = append(c.Layers, chain.Layer{
			Name: "layer", ForwardS: 0.001 + 0.004*rng.Float64(), BackwardS: 0.002 + 0.008*rng.Float64(),
			OutputBytes: 30 << 20, SavedBytes: 60 << 20, GradientBytes: 30 << 20, WeightBytes: rng.Int64N(4 << 20),
		})
	}
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(8, pipeline.NoLimit, 12e9)}
	p, err := newProblem("bench", r)
	if err != nil {
		b.Fatal(err)
	}
	r.Stages = p.stages
	need := int64(0)
	for s := range p.stages {
		need = max(need, p.bytes(s, 1))
	}
	r.Platform = r.Platform.WithMemory(2 * need)
	return r
}

func run(b *testing.B, name string) {
	r := bench(b)
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

func BenchmarkStar(b *testing.B)      { run(b, "1f1b*") }
func BenchmarkKPeriodic(b *testing.B) { run(b, "k-periodic") }
func BenchmarkList(b *testing.B)      { run(b, "list") }
