package pipeline

import (
	"math"
	"slices"
	"testing"
	"time"

	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// paused is a library whose ops, and updates, compute nothing and take a time each.
type paused struct {
	kernels.Library
	op, update time.Duration
}

func (p paused) Prepare(kernels.Call, kernels.Operands) (runtime.Launch, error) {
	return host.Pause("op", p.op), nil
}

func (p paused) PrepareUpdate(kernels.Update, ...kernels.UpdateOperands) (runtime.Launch, error) {
	return host.Pause("update", p.update), nil
}

// timedAs returns a chain with the times of a run's ops, in whole milliseconds, as pauses are. The time of an op is the median over all
// steps, then the mean over all microbatches.
func timedAs(c *chain.Chain, plan *pipeline.Plan, spans []cycle.Span) *chain.Chain {
	at := make([][]float64, len(plan.Cycle))
	for _, x := range spans {
		at[x.Position] = append(at[x.Position], (x.End - x.Start).Seconds())
	}
	mean := func(kind schedule.Kind, layer int) float64 {
		took, n := 0.0, 0
		for p, op := range plan.Cycle {
			if op.Kind == kind && op.Layer == layer {
				took, n = took+math.Round(1000*stats.Median(at[p]))/1000, n+1
			}
		}
		return took / float64(max(n, 1))
	}
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for i := range out.Layers {
		l, hosted := &out.Layers[i], mean(schedule.HostUpdate, i+1)
		l.ForwardS, l.BackwardS = mean(schedule.ForwardAll, i+1), mean(schedule.Backward, i+1)
		l.Update.DeviceS, l.Update.HostS = mean(schedule.Update, i+1), &hosted
	}
	return &out
}

// pacedRun trains steps of a cyclic plan whose ops compute nothing, and returns when they ran.
func pacedRun(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan) []cycle.Span {
	t.Helper()
	on := targets(t, 1, host.Config{Bandwidth: costs.Platform.Host})
	device, hosted := paused{on[0].Library, time.Millisecond, 2 * time.Millisecond}, paused{on[0].Library, time.Millisecond, 4 * time.Millisecond}
	on[0].Library, on[0].Host = device, hosted
	e, err := New(w, on, costs, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Timed: &Timed{Periods: 16}})
	must(t, err)
	must(t, e.Run(t.Context(), 12*plan.Microbatches))
	ran, err := e.Timings()
	must(t, err)
	return CycleSpans(plan, ran)
}

// pacedGap returns by which part steps of a cyclic plan take longer than the simulation says, given what their ops take.
func pacedGap(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan) float64 {
	t.Helper()
	spans := pacedRun(t, w, costs, plan)
	sim, r, err := plan.PlayCycle(timedAs(costs.Chain, plan, spans), costs.Platform)
	must(t, err)
	windows := sim.Windows(spans, r.WarmUp, r.Repeats)
	seconds := func(w cycle.Window) float64 { return w.Length().Seconds() / float64(w.Steps) }
	return seconds(windows[stats.Middle(windows, seconds)])/r.Period - 1
}

// Given what the ops take, steps of a cyclic plan take no longer than the simulation says: no op waits for what that does not know. This holds
// where there is room, and in the least memory, where many ops wait for those whose bytes they take over.
// Kernels and the link take simulated times, so that the load of the machine counts little; what is left of it is in the worst of all plans.
func TestCyclicPlansRunAsSimulated(t *testing.T) {
	m, err := models.New("gpt2-2-64", models.Config{Batch: 2, Image: 12, Classes: 50})
	must(t, err)
	w := workloadOf(t, m, kernels.SGD{Momentum: 0.9})
	var gaps []float64
	counts := []int{1, 2}
	if testing.Short() {
		counts = counts[:1]
	}
	for _, n := range counts {
		for name, way := range cyclicPlans {
			p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 50e6, Duplex: true, HostMemory: 1 << 40}
			c := withState(w)
			plan, err := pipeline.PlanCycle(c, name, way.byMicrobatch(c, n), p)
			must(t, err)
			c = timedAs(c, plan, pacedRun(t, w, Costs{c, p}, plan)) // costs were made up before
			least := p.WithMemory(needed(t, w, Costs{c, p.WithMemory(1)}, plan)[0].Extent)
			for _, on := range []*pipeline.Platform{p, least} {
				plan.Waits = needed(t, w, Costs{c, on}, plan)[0].Waits
				gap := math.Inf(1)
				for try := 0; try < 3 && gap > 0.05; try++ { // a stall of the machine does not come again and again
					gap = min(gap, pacedGap(t, w, Costs{c, on}, plan))
				}
				gaps = append(gaps, gap)
				t.Logf("%s, %d microbatches in %d B: %+.1f %%", name, n, on.Memory[0], 100*gap)
			}
		}
	}
	if median, worst := stats.Median(gaps), slices.Max(gaps); median > 0.005 || worst > 0.1 {
		t.Errorf("gaps of %.1f %% in the middle, %.1f %% at worst", 100*median, 100*worst)
	}
}
