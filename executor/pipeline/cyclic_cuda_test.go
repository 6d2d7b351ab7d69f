//go:build cuda && linux && amd64

package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
	"plimsoll/runtime"
	cuda "plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/host"
)

// On a GPU, plans that move weights, gradients and state train the weights of a plan that keeps everything on the device, to the last bit.
// They have updates on the host and on the device, in the same step and in the next one, as graphs and call by call.
func TestGPUsTrainCyclicPlans(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	rule := kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 8, Classes: 10})
	must(t, err)
	w, err := Compile(m, gpus(t, 1)[0].Library, rule)
	must(t, err)
	c := withState(w)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 28}
	seen := map[string]int{}
	for _, n := range []int{1, 2} {
		steps := 3 * n
		flush := counted(w, 1)
		run := func(c Costs, plan *pipeline.Plan, o Options) (*Executor, *pipelinetest.Outcome) {
			on := gpus(t, 1)
			precedeUpdates(t, on, func() error { // copies that do not wait for an update take old weights
				time.Sleep(time.Millisecond)
				return nil
			})
			e, out := trainedOn(t, on, w, c, plan, steps, o)
			out.Tensors = tensors(t, e)
			return e, out
		}
		_, want := run(flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n}), Options{NoGraph: true})
		plans := map[string]*pipeline.Plan{"planned": plannedResidency(t, c, p, n)}
		for _, name := range []string{"optimizer", "window", "streamed", "delayed-host", "delayed-device"} {
			plans[name], err = pipeline.PlanCycle(c, name, cyclicPlans[name].byLayer(c, n), p)
			must(t, err)
		}
		for name, plan := range plans {
			count(seen, plan.Cycle)
			for _, o := range []Options{{NoGraph: true}, {}, {Audit: true}} {
				what := fmt.Sprintf("%s, %d microbatches, %+v", name, n, o)
				e, got := run(Costs{c, p}, plan, o)
				if calls := followingCalls(e); o.NoGraph != (calls > 0) && !o.Audit {
					t.Errorf("%s: %d calls follow each other", what, calls)
				}
				if o.Audit && e.Audited()[0].PeakBytes != e.memory[0].Peak {
					t.Errorf("%s: audited %+v, planned %+v", what, e.Audited()[0], e.memory[0])
				}
				if d := want.FirstDifference(got); d != "" {
					t.Errorf("%s: %s\n%v", what, d, plan.Cycle)
				}
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{"plan", "H", "U", "Og", "Pg", "Pw", "Ps", "prime"} {
		if seen[what] < 1 {
			t.Errorf("%d of %q: %v", seen[what], what, seen)
		}
	}
}

// On a GPU, too, plans can have weights in bfloat16 and master copies in the state. They train, to the last bit, the weights of a plan that
// keeps all in float32 on the device.
func TestGPUsKeepMasters(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 8, Classes: 10, DType: kernels.BFloat16})
	must(t, err)
	for _, rule := range []kernels.Update{kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}, kernels.SGD{Momentum: 0.9}} {
		lib := gpus(t, 1)[0].Library
		wide, err := Compile(m, lib, rule)
		must(t, err)
		w := *wide
		w.KeepMasters(lib)
		rounded := int64(0)
		for _, q := range m.Params() {
			if w.Rounded(q) {
				rounded += q.Desc.Bytes() / 2
			}
		}
		if rounded == 0 {
			t.Fatal("no weight is rounded")
		}
		c := withState(&w)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 28}
		flush := counted(wide, 1)
		kept, want := trainedOn(t, gpus(t, 1), wide, flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: 1}), 3, Options{NoGraph: true})
		want.Tensors = tensors(t, kept)
		for _, name := range []string{"optimizer", "streamed", "delayed-device"} {
			plan, err := pipeline.PlanCycle(c, name, cyclicPlans[name].byLayer(c, 1), p)
			must(t, err)
			e, got := trainedOn(t, gpus(t, 1), &w, Costs{c, p}, plan, 3, Options{Audit: true})
			got.Tensors = tensors(t, e)
			if e.Audited()[0].PeakBytes != e.memory[0].Peak {
				t.Errorf("%+v, %s: audited %+v, planned %+v", rule, name, e.Audited()[0], e.memory[0])
			}
			if d := want.FirstDifference(got); d != "" {
				t.Errorf("%+v, %s: %s", rule, name, d)
			}
		}
	}
}

// On a GPU, too, plans with gradients in bfloat16 train the weights of a plan that keeps all of them on the device, to the last bit.
func TestGPUsKeepNarrowGradients(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 8, Classes: 10, DType: kernels.BFloat16})
	must(t, err)
	lib := gpus(t, 1)[0].Library
	w, err := Compile(m, lib, kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1})
	must(t, err)
	w.KeepMasters(lib)
	if w.NarrowGradients(); !w.HasNarrowGradients() {
		t.Fatal("no gradient is kept in bfloat16")
	}
	c := withState(w)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 28}
	run := func(name string) *pipelinetest.Outcome {
		plan, err := pipeline.PlanCycle(c, name, cyclicPlans[name].byMicrobatch(c, 2), p)
		must(t, err)
		e, got := trainedOn(t, gpus(t, 1), w, Costs{c, p}, plan, 6, Options{Audit: true})
		if got.Tensors = tensors(t, e); e.Audited()[0].PeakBytes != e.memory[0].Peak {
			t.Errorf("%s: audited %+v, planned %+v", name, e.Audited()[0], e.memory[0])
		}
		return got
	}
	want := run("resident")
	for _, name := range []string{"optimizer", "streamed", "delayed-device"} {
		if d := want.FirstDifference(run(name)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// An update on the host that fails ends the run with its error.
func TestHostUpdatesThatFailOnGPUs(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 8, Classes: 10})
	must(t, err)
	on := gpus(t, 1)
	w, err := Compile(m, on[0].Library, optimizer)
	must(t, err)
	c := withState(w)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, HostMemory: 1 << 28}
	plan, err := pipeline.PlanCycle(c, "optimizer", cyclicPlans["optimizer"].byLayer(c, 1), p)
	must(t, err)
	errBroken, left := errors.New("the memory is broken"), 2*len(c.Layers)+1
	precedeUpdates(t, on, func() error {
		if left--; left < 0 {
			return errBroken
		}
		return nil
	})
	e, err := New(w, on, Costs{c, p}, plan, Options{Feed: feedOf(m), Seed: 7, Rate: rate})
	must(t, err)
	err = e.Run(t.Context(), 40)
	var stopped *runtime.StreamError
	if !errors.Is(err, errBroken) || !errors.As(err, &stopped) {
		t.Errorf("Run = %v", err)
	}
}

// precedeUpdates has the only device call f before each of its updates on the host.
func precedeUpdates(t *testing.T, on []executor.Target, f func() error) {
	t.Helper()
	u, err := library.OpenHost(on[0].Device, library.Options{})
	must(t, err)
	on[0].Host = calling{u, f}
}

// calling calls a function before each update, which does not run when that fails.
type calling struct {
	kernels.Updater
	before func() error
}

func (c calling) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	l, err := c.Updater.PrepareUpdate(u, all...)
	if err != nil {
		return nil, err
	}
	return host.Func{Name: l.Kernel(), Do: func() error {
		if err := c.before(); err != nil {
			return err
		}
		return l.(host.Launch).Run()
	}}, nil
}

// plannedResidency returns a plan of the planner's search in 60 % of the memory of a plan that keeps everything on the device.
func plannedResidency(t *testing.T, c *chain.Chain, p *pipeline.Platform, microbatches int) *pipeline.Plan {
	t.Helper()
	o := pipeline.Options{Microbatches: microbatches}
	s, err := planner.Lookup("resident")
	must(t, err)
	free, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: o})
	must(t, err)
	s, err = planner.Lookup(residency.Search)
	must(t, err)
	plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p.WithMemory(free.Peak() * 6 / 10), Options: o})
	must(t, err)
	return plan
}
