package pipeline

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
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

// timedAs returns a chain with the times of a run's ops, where an op takes the same in all steps. Its time is the mean over all
// microbatches.
func timedAs(c *chain.Chain, plan *pipeline.Plan, spans []cycle.Span) *chain.Chain {
	at := make([][]float64, len(plan.Cycle))
	for _, x := range spans {
		at[x.Position] = append(at[x.Position], (x.End - x.Start).Seconds())
	}
	mean := func(kind schedule.Kind, layer int) float64 {
		took, n := 0.0, 0
		for p, op := range plan.Cycle {
			if op.Kind == kind && op.Layer == layer {
				took, n = took+stats.Median(at[p]), n+1
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

// pacedRun trains steps of a cyclic plan whose ops compute nothing, and returns when they ran, on a clock that only pauses and copies move.
func pacedRun(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan) (spans []cycle.Span) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		on := targets(t, 1, host.Config{Bandwidth: costs.Platform.Host, FakeClock: true})
		device, hosted := paused{on[0].Library, time.Millisecond, 2 * time.Millisecond}, paused{on[0].Library, time.Millisecond, 4 * time.Millisecond}
		on[0].Library, on[0].Host = device, hosted
		e, err := New(w, on, costs, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Timed: &Timed{Periods: 16}})
		must(t, err)
		must(t, e.Run(t.Context(), 12*plan.Microbatches))
		ran, err := e.Timings()
		must(t, err)
		spans = CycleSpans(plan, ran)
	})
	return spans
}

// Given what the ops take, steps of a cyclic plan take no longer than the simulation says: no op waits for what that does not know. This holds
// where there is room, and in the least memory, where many ops wait for those whose bytes they take over. Batches and losses cross the link, too: the simulation leaves out these small copies.
func TestCyclicPlansRunAsSimulated(t *testing.T) {
	m, err := models.New("gpt2-2-64", models.Config{Batch: 2, Image: 12, Classes: 50})
	must(t, err)
	w := workloadOf(t, m, kernels.SGD{Momentum: 0.9})
	for _, n := range []int{1, 2} {
		for name, way := range cyclicPlans {
			p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 50e6, Duplex: true, HostMemory: 1 << 40}
			c := withState(w)
			plan, err := pipeline.PlanCycle(c, name, way.byMicrobatch(c, n), p)
			must(t, err)
			c = timedAs(c, plan, pacedRun(t, w, Costs{c, p}, plan)) // costs were made up before
			least := p.WithMemory(needed(t, w, Costs{c, p.WithMemory(1)}, plan)[0].Extent)
			for _, on := range []*pipeline.Platform{p, least} {
				plan.Waits = needed(t, w, Costs{c, on}, plan)[0].Waits
				spans := pacedRun(t, w, Costs{c, on}, plan)
				sim, r, err := plan.PlayCycle(c, on)
				must(t, err)
				windows := sim.Windows(spans, r.WarmUp, r.Repeats)
				seconds := func(w cycle.Window) float64 { return w.Length().Seconds() / float64(w.Steps) }
				if gap := seconds(windows[stats.Middle(windows, seconds)])/r.Period - 1; math.Abs(gap) > 3e-4 {
					t.Errorf("%s, %d microbatches in %d B: %+.4f %%", name, n, on.Memory[0], 100*gap)
				}
			}
		}
	}
}
