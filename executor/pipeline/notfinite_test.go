package pipeline

import (
	"errors"
	"math"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// The first layer that is not finite is the one that has a bad weight, or the first one of a bad image;
// nothing changes for that.
func TestFirstNotFinite(t *testing.T) {
	t.Parallel()
	m, err := models.New("resnet20", models.Config{Batch: 2, Image: 16, Classes: 10})
	must(t, err)
	w := workload(t, m)
	c := counted(w, 1)
	s, err := planner.Lookup("rotor")
	must(t, err)
	full, err := w.Extent(w.StoreAll())
	must(t, err)
	plan, err := executor.Plan(t.Context(), w, c.Chain, s, full, strategy.Options{})
	must(t, err)
	c.Platform = plan.Platform
	e, _ := trainedWith(t, w, c, plan, 2, host.Config{}, Options{Limits: []int64{full}})
	images, labels := make([]float32, m.Input.Elements()), make([]int32, m.Labels.Elements())
	feedOf(m).batch(1, images, labels)
	look := func(want string) {
		t.Helper()
		if got, err := e.FirstNotFinite(1, images, labels); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	before := tensors(t, e)
	look("")
	for i, x := range tensors(t, e) {
		if x.Name != before[i].Name || math.Float32bits(x.Values[0]) != math.Float32bits(before[i].Values[0]) {
			t.Errorf("the %s of %s has changed", x.Role, x.Name)
		}
	}
	images[5] = float32(math.Inf(-1))
	look(m.Layers[0].Name)
	images[5] = 0
	for _, x := range e.Tensors() {
		if x.Role == "weight" && x.Layer == 4 {
			values := make([]float32, x.Desc.Elements())
			values[0] = float32(math.NaN())
			must(t, e.Write(x, values))
			break
		}
	}
	look(m.Layers[3].Name)
	e.opt.Limits = []int64{1}
	e.memory[0].Extent = e.memory[0].Static
	if _, err := e.FirstNotFinite(1, images, labels); !errors.As(err, new(*LimitError)) {
		t.Errorf("without memory: %v", err)
	}
}

// An evaluation in the only stage takes what its largest layer takes with its input and output: the batch leaves its memory to later
// layers.
func TestEvaluationsTakeWhatALayerTakes(t *testing.T) {
	t.Parallel()
	for _, z := range []sample{{"resnet20", models.Config{Batch: 8, Image: 32, Classes: 10}}, {"tiny", models.Config{Batch: 4, Image: 16, Classes: 10}}, {"gpt2-3-16-untied", models.Config{Batch: 2, Image: 12, Classes: 50}}} {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		c := counted(w, 1)
		full, err := w.Extent(w.StoreAll())
		must(t, err)
		s, err := planner.Lookup("store-all")
		must(t, err)
		plan, err := executor.Plan(t.Context(), w, c.Chain, s, full, strategy.Options{})
		must(t, err)
		c.Platform = plan.Platform
		e, err := New(w, targets(t, 1, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate})
		must(t, err)
		x, in, most := e.evaluationOf(0), w.InputBytes(), int64(0)
		end := x.inputs[0].End()
		for i := range x.frames {
			f := &x.frames[i]
			most = max(most, in+f.output.Bytes+f.scratch.Bytes)
			in, end = f.output.Bytes, max(end, f.output.End(), f.scratch.End())
		}
		if bytes := end - e.memory[0].Static - kernels.Align(kernels.ScalarsBytes); bytes != most {
			t.Errorf("%s: an evaluation takes %d bytes, its largest layer %d", z.name, bytes, most)
		}
	}
}
