package auto

import (
	"context"
	"errors"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// BenchmarkAuto plans every real chain at nine limits and four links. Metric slowest-s is the slowest of these plans; the aim is 30 s on
// two cores. Metric gap is the mean distance to the lower bound.
func BenchmarkAuto(b *testing.B) {
	for _, name := range []string{"resnet50", "vgg16", "resnext50", "gnmt"} {
		c, err := chain.Read(shared.Chains(b, name+".json"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { benchmark(b, c) })
	}
}

func benchmark(b *testing.B, c *chain.Chain) {
	peak := storeAllPeak(b, c)
	slowest, gaps, plans := 0.0, 0.0, 0
	for b.Loop() {
		for _, bandwidth := range []float64{0, 6e9, 12e9, 48e9} {
			for share := int64(20); share < 110; share += 10 {
				begin := b.Elapsed()
				r, err := Plan(context.Background(), strategy.Problem{Chain: c, Memory: peak * share / 100, Link: schedule.Link{Bandwidth: bandwidth}}, Options{})
				slowest = max(slowest, (b.Elapsed() - begin).Seconds())
				if _, refused := errors.AsType[*pipeline.InfeasibleError](err); refused {
					continue
				}
				if err != nil {
					b.Fatal(err)
				}
				gaps += bound.Gap(r.Makespan, r.Bound)
				plans++
			}
		}
	}
	b.ReportMetric(slowest, "slowest-s")
	b.ReportMetric(100*gaps/float64(plans), "gap-%")
}
