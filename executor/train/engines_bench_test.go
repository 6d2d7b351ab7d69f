package train

import (
	"context"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
)

// BenchmarkEngines alternates steps of two runs along one sequence, of deviceEngine and of pipelineEngine, with all that a step of train
// does. ratio is the median of how many times as long those of pipelineEngine took; pairs is how many steps of each there were.
func BenchmarkEngines(b *testing.B) {
	for _, x := range []struct {
		strategy string
		share    float64
	}{{"store-all", 1}, {"offload-dynprog", 0.6}} {
		b.Run(x.strategy, func(b *testing.B) {
			engines := []engine{benched(b, openDevice, x.strategy, x.share), benched(b, openPipeline, x.strategy, x.share)}
			seconds := func(k int) float64 {
				start := time.Now()
				must(b, engines[k].pass(b.Context()))
				return time.Since(start).Seconds()
			}
			var ratios []float64
			for n := 0; b.Loop(); n++ {
				took := [2]float64{}
				took[n%2] = seconds(n % 2)
				took[1-n%2] = seconds(1 - n%2)
				ratios = append(ratios, took[1]/took[0])
			}
			b.ReportMetric(stats.Median(ratios[1:]), "ratio")
			b.ReportMetric(float64(len(ratios)-1), "pairs")
			for _, e := range engines {
				must(b, e.close(nil))
			}
		})
	}
}

// benched opens a run along a plan of a strategy, in a share of what store-all's ops take, on an engine.
func benched(b *testing.B, open func(context.Context, *loop) (engine, error), name string, share float64) engine {
	b.Helper()
	j := opened(b, Spec{
		Model: "resnet20", Config: models.Config{Batch: 32, Image: 32}, Data: "glyphs", Seed: 3, Devices: "cpu", Threads: 1, Update: kernels.SGD{Momentum: 0.9},
	})
	c := j.Work.Unmeasured()
	c.Bandwidth = 4e9
	s, err := planner.Lookup(name)
	must(b, err)
	limit, err := j.StoreAllExtent()
	must(b, err)
	static := j.Work.StaticBytes()
	limit = static + int64(share*float64(limit-static))
	p, err := executor.Plan(b.Context(), j.Work, c, s, limit, strategy.Options{})
	must(b, err)
	r := &Run{Job: j, Chain: c, Plan: j.SequenceOf(c, p, limit), Steps: 1 << 30, Rate: Rate{Peak: 0.01}}
	l := &loop{Run: r, out: &Outcome{Summary: r.summary()}, saved: -1}
	e, err := open(b.Context(), l)
	must(b, err)
	l.engine = e
	must(b, e.pass(b.Context())) // the first step is slower
	return e
}
