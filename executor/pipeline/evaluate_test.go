package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// predictions are the logits of some batches, from the sequential reference with the weights of a pipeline.
func predictions(t *testing.T, e *Executor, batches int) (all [][]float32) {
	t.Helper()
	on := targets(t, 1, host.Config{})[0]
	r := predictor(t, on, e.Model, feedOf(e.Model).batch)
	for b := range batches {
		logits, err := r.Predict(tensors(t, e), b)
		must(t, err)
		all = append(all, logits)
	}
	return all
}

// predictor returns the sequential reference of a model in one stage.
func predictor(t *testing.T, on executor.Target, m *models.Model, batch func(int, []float32, []int32)) *pipelinetest.Reference {
	t.Helper()
	r, err := pipelinetest.New(pipelinetest.Config{
		Model: m, Device: on.Device, Library: on.Library, Optimizer: optimizer, Seed: 7, LR: func(_, update int) float32 { return rate(update) },
		Stages: []pipelinetest.Stage{{First: 1, Last: len(m.Layers)}}, Batch: batch,
	})
	must(t, err)
	return r
}

// A pipeline predicts bit for bit as one device with its weights does, in chaos too. Its stages may be contiguous, meet again on a device,
// be on several devices, or be the loss alone.
func TestEvaluateIsThatOfOneDevice(t *testing.T) {
	t.Parallel()
	const batches = 9
	w := workload(t, testModel(t))
	n := len(w.Layers)
	looped := []pipeline.Stage{
		{First: 1, Last: 3, Devices: []int{0}}, {First: 4, Last: 5, Devices: []int{1}}, {First: 6, Last: n - 1, Devices: []int{2}}, {First: n, Last: n, Devices: []int{0}},
	}
	ran := 0
	for _, c := range []struct {
		name   string
		stages []pipeline.Stage
		micro  int
		config host.Config
	}{
		{"gpipe", nil, 4, host.Config{}},
		{"interleaved", nil, 6, host.Config{Chaos: 3}},
		{"chimera", nil, 4, host.Config{}},
		{"list", looped, 0, host.Config{Chaos: 5}},
		{"madpipe", nil, 0, host.Config{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices := 3
			if c.name == "chimera" {
				devices = 4
			}
			costs := costs(w, devices, 2)
			plan := planFor(t, c.name, costs, pipeline.Options{Microbatches: c.micro, Stages: c.stages})
			group, err := Grouping(w, costs, plan, Options{})
			must(t, err)
			e, _ := trained(t, w, costs, plan, 2*group, c.config)
			want := predictions(t, e, batches)
			next := 0
			must(t, e.Evaluate(t.Context(), feedOf(w.Model), batches, func(batch int, logits []float32) error {
				if batch != next {
					t.Errorf("batch %d in place of %d", batch, next)
				}
				for i, v := range logits {
					if v != want[batch][i] {
						t.Fatalf("batch %d: logit %d is %v, on one device %v", batch, i, v, want[batch][i])
					}
				}
				next++
				return nil
			}))
			if next != batches {
				t.Errorf("%d batches", next)
			}
			ran++
		})
	}
	if ran != 5 {
		t.Errorf("%d plans", ran)
	}
}

// silent is a run of n minibatches of which nobody is told.
func silent(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, n int) *Executor {
	t.Helper()
	e, err := New(w, targets(t, c.Platform.Devices, host.Config{}), c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate})
	must(t, err)
	must(t, e.Run(t.Context(), n))
	return e
}

// An evaluation between two runs changes nothing: it works in memory that only minibatches in flight use.
func TestEvaluateLeavesTrainingAlone(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	for _, name := range []string{"1f1b-flush", "madpipe"} {
		c := costs(w, 3, 1)
		o := pipeline.Options{}
		if name == "1f1b-flush" {
			o.Microbatches = 4
		}
		plan := planFor(t, name, c, o)
		group, err := Grouping(w, c, plan, Options{})
		must(t, err)
		var both [2]*Executor
		for i := range both {
			e := silent(t, w, c, plan, group)
			if i == 1 {
				must(t, e.Evaluate(t.Context(), feedOf(w.Model), 3, func(int, []float32) error { return nil }))
			}
			must(t, e.Run(t.Context(), 2*group))
			both[i] = e
		}
		for i, x := range tensors(t, both[0]) {
			y := tensors(t, both[1])[i]
			for k := range x.Values {
				if x.Values[k] != y.Values[k] {
					t.Fatalf("%s: %s differs after an evaluation", name, x.Name)
				}
			}
		}
	}
}

// If an evaluation is ended from outside, the executor stays usable. If a device fails, the executor stops, and the error names the device.
func TestEvaluateThatEndsEarly(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 3, 1)
	plan := planFor(t, "gpipe", c, pipeline.Options{Microbatches: 2})
	broken, fail := errors.New("broken"), false
	e, _ := trained(t, w, c, plan, 2, host.Config{Fault: func(op string) error {
		if fail && op == "copy to peer" {
			return broken
		}
		return nil
	}})
	nothing := func(int, []float32) error { return nil }
	enough := errors.New("enough")
	if err := e.Evaluate(t.Context(), random{classes: 5}, 4, func(int, []float32) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Evaluate(ctx, random{classes: 5}, 4, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	must(t, e.Evaluate(t.Context(), random{classes: 5}, 4, nothing))
	fail = true
	var task *TaskError
	if err := e.Evaluate(t.Context(), random{classes: 5}, 4, nothing); !errors.Is(err, broken) || !errors.As(err, &task) {
		t.Errorf("%v", err)
	}
	if err := e.Run(t.Context(), 2); !errors.Is(err, ErrStopped) {
		t.Errorf("after a device failed: %v", err)
	}
	e = silent(t, w, c, plan, 2)
	bug := bad{random{classes: 5}, 2, func() error { panic("feed") }}
	if err := e.Evaluate(t.Context(), bug, 4, nothing); err == nil || !strings.Contains(err.Error(), "BUG: panic: feed") {
		t.Errorf("%v", err)
	}
	if err := e.Run(t.Context(), 2); !errors.Is(err, ErrStopped) {
		t.Errorf("after a panic: %v", err)
	}
}

// Logits in bfloat16 become those in float32 in the same memory, however many there are.
func TestLogitsAreWidenedInPlace(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 1000, leastWidened, 5*leastWidened + 3} {
		logits := make([]float32, n)
		from := asBytes(logits)[2*n:]
		for i := range n {
			binary.LittleEndian.PutUint16(from[2*i:], uint16(i%0x7f00))
		}
		widen(logits, from)
		for i, v := range logits {
			if want := kernels.FromBFloat16(uint16(i % 0x7f00)); v != want {
				t.Fatalf("%d logits: number %d is %v, want %v", n, i, v, want)
			}
		}
	}
}
