package ilp

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// BenchmarkSmallChains: 12 random chains of 5, 6 and 8 layers on 3 devices whose memory is 1.1 to 1.7 times the least, 30 s each. It
// reports how many periods are shorter than madpipe's, the largest such part, and how many were proved best.
func BenchmarkSmallChains(b *testing.B) {
	if !milp.Built {
		b.Skip(milp.ErrNoSolver)
	}
	for b.Loop() {
		duel(b)
	}
}

// duel plans all chains and reports.
func duel(b *testing.B) {
	better, proved, most := 0, 0, 0.0
	for _, n := range []int{5, 6, 8} {
		for seed := range uint64(4) {
			r := smallChain(b, n, seed)
			first, err := with(b, "madpipe", r)
			if err != nil {
				b.Fatal(err)
			}
			plan, err := solve(context.Background(), r)
			var late *pipeline.UnfinishedError
			switch {
			case err == nil:
				proved++
			case errors.As(err, &late):
				plan = late.Best
			default:
				b.Fatal(err)
			}
			if plan.Period < first.Period*(1-1e-9) {
				better++
				most = max(most, 1-plan.Period/first.Period)
			}
		}
	}
	b.ReportMetric(float64(better), "better")
	b.ReportMetric(100*most, "%shorter")
	b.ReportMetric(float64(proved), "proved")
}

// smallChain returns a random chain of n layers on three devices.
func smallChain(b *testing.B, n int, seed uint64) pipeline.Request {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	c := pipelinetest.Chain(rng, n, true)
	for i := range c.Layers {
		c.Layers[i].ForwardS *= 1 + rng.Float64()
		c.Layers[i].BackwardS *= 1 + rng.Float64()
	}
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(3, pipeline.NoLimit, 20/c.Layers[0].ForwardS)}
	r.TimeLimit = 30 * time.Second
	few, err := searchOf(b, r).fewest(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	r.Platform = r.Platform.WithMemory(few.excess * int64(11+2*seed) / 10)
	return r
}
