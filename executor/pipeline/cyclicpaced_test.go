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

// timedAs returns a chain whose ops take what they took in a run, in the mean.
func timedAs(c *chain.Chain, plan *pipeline.Plan, spans []cycle.Span) *chain.Chain {
	took, times := map[cycle.Op]float64{}, map[cycle.Op]int{}
	for _, x := range spans {
		op := plan.Cycle[x.Position]
		op.Microbatch, op.Prime = 0, false
		took[op], times[op] = took[op]+(x.End-x.Start).Seconds(), times[op]+1
	}
	mean := func(kind schedule.Kind, layer int) float64 {
		op := cycle.Op{Kind: kind, Layer: layer}
		return took[op] / float64(max(times[op], 1))
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

// A device with one core and no thread to itself runs the steps of a cyclic plan as the simulation says, given what the ops take: nothing
// waits for what the simulation does not know. Kernels and the link take simulated times, so that the machine's load counts little.
func TestCyclicPlansRunAsSimulated(t *testing.T) {
	m, err := models.New("gpt2-2-64", models.Config{Batch: 2, Image: 12, Classes: 50})
	must(t, err)
	w := workloadOf(t, m, kernels.SGD{Momentum: 0.9})
	c := withState(w)
	for _, n := range []int{1, 2} {
		for name, way := range cyclicPlans {
			p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 50e6, Duplex: true, HostMemory: 1 << 40}
			plan, err := pipeline.PlanCycle(c, name, way.byMicrobatch(c, n), p)
			must(t, err)
			on := targets(t, 1, host.Config{Bandwidth: 50e6})
			on[0].Library, on[0].Host = paused{on[0].Library, time.Millisecond, 2 * time.Millisecond}, paused{on[0].Library, time.Millisecond, 4 * time.Millisecond}
			e, err := New(w, on, Costs{c, p}, plan, Options{Feed: feedOf(m), Seed: 7, Rate: rate, Timed: &Timed{Periods: 16}})
			must(t, err)
			must(t, e.Run(t.Context(), 12*n))
			ran, err := e.Timings()
			must(t, err)
			spans := CycleSpans(plan, ran)
			sim, r, err := plan.PlayCycle(timedAs(c, plan, spans), p)
			must(t, err)
			windows := sim.Windows(spans, r.WarmUp, r.Repeats)
			middle := windows[stats.Middle(windows, func(w cycle.Window) float64 { return w.Length().Seconds() })]
			measured := middle.Length().Seconds() / float64(middle.Steps)
			t.Logf("%s, %d: predicted %.1f ms, measured %.1f ms, %+.1f %%", name, n, 1000*r.Period, 1000*measured, 100*(measured/r.Period-1))
			if n == 1 {
				was := sim.Replay(r.Spans(), sim.Steady())
				_ = was
				for _, x := range sim.Replay(spans, middle) {
					if x.Wait.Other > 100*time.Microsecond || x.Wait.Transfer > 100*time.Microsecond {
						t.Logf("   %v waited %+v (%v) start %v", x.Op, x.Wait, x.Inside, x.Start-middle.From)
					}
				}
			}
			if math.Abs(measured/r.Period-1) > 0.02 {
				t.Errorf("%s, %d microbatches: predicted %v s, measured %v s", name, n, r.Period, measured)
			}
		}
	}
}
