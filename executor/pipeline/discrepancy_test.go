package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels/cpu"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// distance returns the largest difference between the weights of two outcomes.
func distance(a, b *pipelinetest.Outcome) (most float64) {
	for _, x := range a.Tensors {
		if x.Role != "weight" {
			continue
		}
		for i, v := range b.Tensor(x.Role, x.Name) {
			d := math.Abs(float64(v - x.Values[i]))
			if most = max(most, d); math.IsNaN(d) {
				return d
			}
		}
	}
	return most
}

// T2 against a sequential program that keeps δ in float64: the weights are the same but for rounding, and far from those
// without it and with another decay.
func TestPipeMareCorrectsTheWeightsOfBackwards(t *testing.T) {
	t.Parallel()
	const n, decay, anneal = 12, 0.3, 6
	m := plainModel(t)
	w := workload(t, m)
	compared := 0
	for _, x := range []struct {
		strategy string
		devices  int
		anneal   int
	}{{"1f1b*", 3, 0}, {"1f1b*", 4, anneal}, {"contiguous", 4, 0}} {
		t.Run(fmt.Sprintf("%s/%d/%d", x.strategy, x.devices, x.anneal), func(t *testing.T) {
			c := costs(w, x.devices, uint64(x.devices))
			plan := planFor(t, x.strategy, c, pipeline.Options{Versions: pipeline.Latest, WeightCopies: []float64{6}})
			missed := delays(t, c, plan)
			e, got := trainedWith(t, w, c, plan, n, host.Config{Chaos: 2}, Options{PipeMare: &PipeMare{Anneal: x.anneal, Decay: decay}})
			got.Tensors = tensors(t, e)
			lr := func(_, u int) float32 { return rate(u) }
			tau, rates := make([]float64, len(missed)), make([]float64, len(missed))
			for s, d := range missed {
				tau[s], rates[s] = float64(d), max(float64(d), 1)
			}
			if x.anneal > 0 {
				lr = pipelinetest.Rescheduled(rate, rates, x.anneal)
			}
			run := func(c *pipelinetest.Corrected) *pipelinetest.Outcome { return corrected(t, w, plan, missed, n, lr, c) }
			off := distance(run(&pipelinetest.Corrected{Delays: tau, Decay: decay}), got)
			without, other := distance(run(nil), got), distance(run(&pipelinetest.Corrected{Delays: tau, Decay: 0.1}), got)
			t.Logf("delays %v: weights are off by %.2g; %.2g without T2, %.2g with another decay", missed, off, without, other)
			if !(off < 2e-5) || !(without > 30*off) || !(other > 10*off) {
				t.Errorf("weights are off by %g; %g without T2, %g with another decay", off, without, other)
			}
			compared++
		})
	}
	if compared != 3 {
		t.Errorf("%d runs were compared", compared)
	}
}

// corrected is a run of the sequential program of Latest weights.
func corrected(t *testing.T, w *Workload, plan *pipeline.Plan, missed []int, n int, lr func(stage, update int) float32, c *pipelinetest.Corrected) *pipelinetest.Outcome {
	t.Helper()
	dev, err := host.New(host.Config{Memory: 1 << 30, HostMemory: 1 << 30})
	must(t, err)
	defer func() { must(t, dev.Close()) }()
	lib, err := cpu.New(dev, cpu.Options{Threads: 1})
	must(t, err)
	config := pipelinetest.Config{
		Model: w.Model, Device: dev, Library: lib, Optimizer: optimizer, Seed: 7, LR: lr, Batch: feedOf(w.Model).batch, Corrected: c,
	}
	for _, s := range plan.Stages {
		config.Stages = append(config.Stages, pipelinetest.Stage{First: s.First, Last: s.Last})
	}
	r, err := pipelinetest.New(config)
	must(t, err)
	out, err := r.Run(pipelinetest.Latest(missed), n)
	must(t, err)
	return out
}

// The mean of the changes begins anew in every run, so one that goes on from saved tensors is as one that stopped and went on.
func TestCorrectedRunsGoOn(t *testing.T) {
	t.Parallel()
	m := testModel(t)
	w := workload(t, m)
	c := costs(w, 3, 3)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Latest})
	opt := Options{PipeMare: &PipeMare{Anneal: 4, Decay: 0.135}}
	first, out := trainedWith(t, w, c, plan, 6, host.Config{}, opt)
	saved := tensors(t, first)
	first.opt.Done = nil
	must(t, first.Run(context.Background(), 6))
	out.Tensors = tensors(t, first)
	opt.Past.Minibatches, opt.Feed, opt.Seed, opt.Rate = 6, feedOf(m), 7, rate
	again, err := New(w, targets(t, 3, host.Config{}), c, plan, opt)
	must(t, err)
	for i, x := range again.Tensors() {
		must(t, again.Write(x, saved[i].Values))
	}
	must(t, again.Run(context.Background(), 6))
	if d := pipelinetest.FirstDifference(out.Tensors, tensors(t, again)); d != "" {
		t.Error(d)
	}
}

// T2 takes one copy of the weights of every stage that has a delay.
func TestCorrectionsTakeOneCopy(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 3, 3)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Latest})
	before, err := Needs(w, c, plan, Options{})
	must(t, err)
	after, err := Needs(w, c, plan, Options{PipeMare: &PipeMare{Decay: 0.135}})
	must(t, err)
	missed := delays(t, c, plan)
	if !slices.Contains(missed, 0) || slices.Max(missed) < 1 {
		t.Fatalf("delays %v", missed)
	}
	for s, st := range plan.Stages {
		d := st.Devices[0]
		want := before[d].Weights
		if missed[s] > 0 {
			want *= 2
		}
		if after[d].Weights != want {
			t.Errorf("stage %d: %d bytes of weights, want %d", s, after[d].Weights, want)
		}
	}
	for _, decay := range []float64{-1, 1, math.NaN()} {
		if _, err := Needs(w, c, plan, Options{PipeMare: &PipeMare{Anneal: 3, Decay: decay}}); !errors.Is(err, order.ErrPlan) {
			t.Errorf("a decay of %v: error %v", decay, err)
		}
	}
}
