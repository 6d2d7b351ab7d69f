//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// On a GPU, plans that move weights, gradients and state clip to the bits of a plan that keeps everything on the device. Updates are on the
// host and on the device, in the same step and in the next one, as graphs and call by call.
func TestGPUsClipCyclicPlans(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	const most = 3
	rule := kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 8, Classes: 10})
	must(t, err)
	w, err := Compile(m, gpus(t, 1)[0].Library, rule)
	must(t, err)
	c, flush := withState(w), counted(w, 1)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 28}
	clipped := map[bool]int{}
	for _, n := range []int{1, 2} {
		want := clippedRun(t, gpus(t, 1), w, flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n}), Options{MaxNorm: most, NoGraph: true})
		for _, norm := range want.Norms {
			clipped[norm > most]++
		}
		o := pipeline.Options{Microbatches: n, UpdatesLast: true}
		free := solved(t, "resident", c, p, o)
		plans := map[string]*pipeline.Plan{"planned": solved(t, "residency", c, p.WithMemory(free.Peak()*6/10), o)}
		for name, way := range guardedPlans {
			plans[name] = way.plan(t, c, p, name, n, true)
		}
		for name, plan := range plans {
			for _, o := range []Options{{MaxNorm: most, NoGraph: true}, {MaxNorm: most}} {
				if d := guardedDifference(want, clippedRun(t, gpus(t, 1), w, Costs{c, plan.Platform}, plan, o)); d != "" {
					t.Errorf("%s, %d microbatches, graphs %v: %s\n%v", name, n, !o.NoGraph, d, plan.Cycle)
				}
			}
		}
	}
	if clipped[true] == 0 || clipped[false] == 0 {
		t.Errorf("%d steps are clipped, %d are not", clipped[true], clipped[false])
	}
}
