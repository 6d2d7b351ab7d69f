package pipeline

import (
	"math"
	"slices"
	"testing"
	"time"

	"plimsoll/internal/stats"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
)

// Steps whose gradients pass, and whose weights come for turns, take the simulated time on links of any bandwidth. The sums of owners and the
// copies of their own parts take no time in the simulation. Only this test finds owners that add up behind later messages, so that devices wait
// for each other.
func TestPassingRunsAsSimulated(t *testing.T) {
	m, err := models.New("gpt2-3-256-untied", models.Config{Batch: 1, Image: 12, Classes: 50})
	must(t, err)
	w := workload(t, m)
	const update = 20 * time.Nanosecond
	c := pacedProfile(t, w, update)
	var gaps []float64
	for _, bandwidth := range []float64{pipeline.Free(), 1600e6, 320e6, 80e6} {
		for _, devices := range []int{2, 4} {
			for _, duplex := range []bool{false, true} {
				if testing.Short() && duplex != (devices == 2) {
					continue
				}
				p := pipeline.NewPlatform(devices, pipeline.NoLimit, bandwidth)
				p.Duplex = duplex
				for _, zero := range append([]pipeline.Zero{pipeline.ZeroShards}, passes...) {
					for _, name := range []string{"joint-flush", "chimera"} {
						costs := Costs{c, p}
						plan := planFor(t, name, costs, pipeline.Options{Microbatches: 2 * devices, Accounting: pipeline.Saved, Zero: zero})
						o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{})
						must(t, err)
						want, got := o.Makespan+pipeline.UpdateSeconds(c, p, plan), pacedStep(t, w, costs, plan, update)
						gaps = append(gaps, math.Abs(got/want-1))
						if gaps[len(gaps)-1] > 0.01 {
							t.Errorf("%s with zero %d on %d devices at %g bytes/s, duplex %v: %.3f ms, simulated %.3f ms: %+.2f %%", name, zero, devices, bandwidth, duplex, 1e3*got, 1e3*want, 100*(got/want-1))
						}
					}
				}
			}
		}
	}
	t.Logf("%d plans, gaps of %.3f %% in the middle, %.3f %% at worst", len(gaps), 100*stats.Median(gaps), 100*slices.Max(gaps))
}
