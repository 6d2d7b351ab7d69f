package pipeline_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// All sums over ranges are the sums of their layers.
func TestCostsAreSums(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	ranges := 0
	for range 20 {
		c := pipelinetest.Chain(rnd, 1+rnd.IntN(6), true)
		k := pipeline.NewCosts(c)
		for i := 1; i <= k.Len(); i++ {
			var f, b, bi, bw float64
			var w, inputs int64
			saved := c.Activation(i - 1)
			for j := i; j <= k.Len(); j++ {
				l := c.Layer(j)
				f, b, bi, bw = f+l.ForwardS, b+l.BackwardS, bi+*l.BackwardInputS, bw+*l.BackwardWeightS
				w, inputs, saved = w+l.WeightBytes, inputs+c.Activation(j-1), saved+l.SavedBytes
				if !near(k.Forward(i, j), f) || !near(k.Backward(i, j), b) || !near(k.U(i, j), f+b) || !near(k.BackwardInput(i, j), bi) || !near(k.BackwardWeight(i, j), bw) {
					t.Errorf("times of %d..%d", i, j)
				}
				buffers := k.Boundary(i-1) + k.Boundary(j)
				if k.Weights(i, j) != w || k.Held(i, j, "") != inputs || k.Held(i, j, pipeline.Inputs) != inputs || k.Held(i, j, pipeline.Saved) != saved || k.Buffers(i, j) != buffers {
					t.Errorf("sizes of %d..%d", i, j)
				}
				if k.Memory(i, j, 3, 2, pipeline.Saved) != 2*w+3*saved+buffers || k.Memory(i, j, 0, 0.5, "") != (w+1)/2+buffers {
					t.Errorf("memory of %d..%d", i, j)
				}
				ranges++
			}
		}
		n := k.Len()
		if k.Boundary(0) != 0 || k.Boundary(n) != 0 || k.CanSplit() != 0 {
			t.Error("ends of the chain")
		}
		if n > 1 && (k.Boundary(1) != c.Activation(1)+c.Gradient(1) || !near(k.C(1, 4), float64(k.Boundary(1))/4) || k.C(1, pipeline.Free()) != 0) {
			t.Error("communication")
		}
		if c.Layers[n-1].BackwardInputS = nil; pipeline.NewCosts(c).CanSplit() != n {
			t.Error("a layer without halves is not found")
		}
	}
	if ranges < 100 {
		t.Errorf("%d ranges", ranges)
	}
}

func TestVirtualStages(t *testing.T) {
	t.Parallel()
	k := messages()
	costs := pipeline.NewCosts(k.Chain)
	want := []pipeline.Virtual{{Stage: 0, Forward: 2, Backward: 3}, {Stage: 0, Boundary: true, Forward: 2, Backward: 2}, {Stage: 1, Forward: 1, Backward: 1}}
	if got := costs.Virtuals(k.Plan.Stages, k.Platform); !equal(got, want) || got[1].U() != 4 {
		t.Errorf("%+v", got)
	}
	same := []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}, {First: 2, Last: 2, Devices: []int{0}}}
	if got := costs.Virtuals(same, k.Platform); len(got) != 2 {
		t.Errorf("one device: %+v", got)
	}
	if got := costs.Virtuals(k.Plan.Stages, pipeline.NewPlatform(2, 1, pipeline.Free())); len(got) != 2 {
		t.Errorf("no time: %+v", got)
	}
}

func TestFinish(t *testing.T) {
	t.Parallel()
	k := gpipe()
	p, err := pipeline.Finish("gpipe", pipeline.Request{Chain: k.Chain, Platform: k.Platform}, k.Plan)
	if err != nil || p.Strategy != "gpipe" || p.Chain != "flush" || p.Platform != k.Platform || !equal(p.PerDevicePeak, []int64{4, 4}) || p.Predicted.Makespan != 9 || p.SecondsPerMinibatch() != 4.5 {
		t.Errorf("%+v, %v", p, err)
	}
	var infeasible *pipeline.InfeasibleError
	_, err = pipeline.Finish("gpipe", pipeline.Request{Chain: k.Chain, Platform: k.Platform.WithMemory(3)}, k.Plan)
	if !errors.As(err, &infeasible) || !errors.Is(err, pipeline.ErrInfeasible) || infeasible.Best != k.Plan || !strings.Contains(err.Error(), "device 0 needs 4 B") {
		t.Errorf("%v", err)
	}
	k.Plan.Tasks[0].Start = 0.5
	if _, err = pipeline.Finish("gpipe", pipeline.Request{Chain: k.Chain, Platform: k.Platform}, k.Plan); !errors.Is(err, pipeline.ErrInvalid) || !strings.HasPrefix(err.Error(), "BUG: gpipe") {
		t.Errorf("%v", err)
	}
	if k := replicated(); k.Plan.SecondsPerMinibatch() != 3 {
		t.Error("seconds of a 2-periodic plan")
	}
}

func TestErrorsSayWhatWorks(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"madpipe: no plan fits: layer 3 is too large; the smallest memory of each device that works is 1,234 B; it works with 5 devices": &pipeline.InfeasibleError{Strategy: "madpipe", Reason: "layer 3 is too large", Smallest: 1234, Devices: 5},
		"ilp: out of time before it found a plan: give it a larger time limit":                                                           &pipeline.UnfinishedError{Strategy: "ilp", Gap: math.Inf(1)},
		"ilp: out of time; the best plan so far is at most 12.5% longer than the best possible":                                          &pipeline.UnfinishedError{Strategy: "ilp", Best: &pipeline.Plan{}, Gap: 0.125},
	} {
		if err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if !errors.Is(&pipeline.UnfinishedError{}, pipeline.ErrUnfinished) || errors.Is(context.Canceled, pipeline.ErrUnfinished) {
		t.Error("ErrUnfinished")
	}
}

func TestCopiesAndNames(t *testing.T) {
	t.Parallel()
	for v, want := range map[pipeline.Versions]float64{"": 3, pipeline.DoubleBuffered: 3, pipeline.Stash: 5, pipeline.Latest: 2, pipeline.Flush: 2} {
		if got, ok := v.Copies(4); !ok || got != want {
			t.Errorf("%s: %g, %v", v, got, ok)
		}
	}
	if _, ok := pipeline.VerticalSync.Copies(4); ok {
		t.Error("vertical_sync has no copies of its own")
	}
	for _, k := range []pipeline.Kind{F, B, W, CF, CB} {
		if got, ok := pipeline.ParseKind(k.String()); !ok || got != k || k.Communication() != (k == CF || k == CB) {
			t.Errorf("%v: %v, %v", k, got, ok)
		}
	}
	for k := CB + 1; k <= pipeline.CycleOp; k++ {
		if _, ok := pipeline.ParseKind(k.String()); ok || k.String() == "" || k.Communication() {
			t.Errorf("%v is a kind of tasks", k)
		}
	}
	if _, ok := pipeline.ParseKind(""); ok || (pipeline.CycleOp+1).String() != "Kind(14)" || pipeline.Kind(0).String() != "Kind(0)" {
		t.Error("no kind")
	}
}
