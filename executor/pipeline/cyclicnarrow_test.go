package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// narrowGradients returns a workload whose cyclic plans have weights and their gradients in bfloat16.
func narrowGradients(t *testing.T, w *Workload) *Workload {
	t.Helper()
	x := keepMasters(t, w)
	x.NarrowGradients()
	return x
}

// With gradients in bfloat16, plans that move weights, gradients and state train the weights of a plan that keeps all of them on the device, to
// the last bit. Audited, their memory is what the layout says.
func TestCyclicPlansKeepNarrowGradients(t *testing.T) {
	t.Parallel()
	cases := append([]cyclicCase{}, cyclicCases...)
	cases = append(cases, cyclicCase{sample{"tiny", models.Config{Batch: 4, Image: 8, Classes: 10}}, kernels.Muon{Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6}})
	if testing.Short() {
		cases = cases[:2]
	}
	for _, z := range cases {
		z.config.DType = kernels.BFloat16
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := narrowGradients(t, workloadOf(t, m, z.rule))
		c := withState(w)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
		for _, n := range []int{1, 3} {
			_, want := trainedCycle(t, w, c, p, "resident", cyclicPlans["resident"].byLayer(c, n), n)
			for name, way := range cyclicPlans {
				what := fmt.Sprintf("%s, %s, %d microbatches", z.name, name, n)
				e, out := trainedCycle(t, w, c, p, name, way.byMicrobatch(c, n), n)
				if a, m := e.Audited()[0], e.memory[0]; a.PeakBytes != m.Peak || a.ExtentBytes > m.Extent {
					t.Errorf("%s: audited %+v, planned %+v", what, a, m)
				}
				if d := want.FirstDifference(out); d != "" {
					t.Errorf("%s: %s", what, d)
				}
			}
		}
	}
}

// The first velocity of SGD is the gradient. One that is kept in bfloat16 is the float32 one, rounded once, and takes half the bytes; all others are
// the same. Gradients of shared weights stay in float32.
func TestNarrowGradientsAreRounded(t *testing.T) {
	t.Parallel()
	for _, z := range []sample{
		{"tiny", models.Config{Batch: 4, Image: 8, Classes: 10, DType: kernels.BFloat16}},
		{"gpt2-2-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50, DType: kernels.BFloat16}},
	} {
		m, err := models.New(z.name, z.config)
		must(t, err)
		wide := keepMasters(t, workloadOf(t, m, kernels.SGD{Momentum: 0.9}))
		narrow := narrowGradients(t, wide)
		var outcomes []*pipelinetest.Outcome
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
		for _, w := range []*Workload{wide, narrow} {
			c := withState(w)
			plan, err := pipeline.PlanCycle(c, "optimizer", cyclicPlans["optimizer"].byLayer(c, 1), p)
			must(t, err)
			e, out := trainedWith(t, w, Costs{c, p}, plan, 1, host.Config{}, Options{})
			out.Tensors = tensors(t, e)
			outcomes = append(outcomes, out)
		}
		rounded, saved := 0, int64(0)
		for _, q := range m.Params() {
			if !q.Trained || q.Of != nil {
				continue
			}
			full, got := outcomes[0].Tensor("state0", q.Name), outcomes[1].Tensor("state0", q.Name)
			narrows := narrow.GradientType(q) == kernels.BFloat16
			for i, x := range full {
				if narrows {
					x = kernels.RoundBFloat16(x)
				}
				if got[i] != x {
					t.Fatalf("%s: gradient %d of %s is %v, want %v", z.name, i, q.Name, got[i], x)
				}
			}
			if narrows {
				rounded++
				saved += q.Desc.Storage() - q.Desc.As(kernels.BFloat16).Storage()
			}
		}
		if rounded == 0 {
			t.Errorf("%s: no gradient is rounded", z.name)
		}
		less := int64(0)
		for l := 1; l <= len(m.Layers); l++ {
			less += wide.Chain().Layer(l).WeightGradient() - narrow.Chain().Layer(l).WeightGradient()
		}
		if less != saved || saved == 0 {
			t.Errorf("%s: the gradients of the chain are %d bytes less, want %d", z.name, less, saved)
		}
	}
}

// The norm by which a step is clipped is that of the gradients as they are kept, wherever they are when the weights are updated.
func TestNarrowGradientsAreClipped(t *testing.T) {
	t.Parallel()
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 8, Classes: 10, DType: kernels.BFloat16})
	must(t, err)
	w := narrowGradients(t, workloadOf(t, m, kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6}))
	c := withState(w)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
	run := func(name string) *guardedRun {
		opt := Options{MaxNorm: 0.5, Audit: true}
		return clippedRun(t, targets(t, 1, host.Config{Chaos: 3}), w, Costs{c, p}, guardedPlans[name].plan(t, c, p, name, 2, false), opt)
	}
	want := run("resident")
	for _, name := range []string{"optimizer", "window", "back", "delayed-device"} {
		if d := guardedDifference(want, run(name)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
