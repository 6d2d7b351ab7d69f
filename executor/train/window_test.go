package train

import (
	"math"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
)

// windowSpec is a small job of a model.
func windowSpec(model string) Spec {
	s := Spec{
		Model: model, Config: models.Config{Batch: 4, Image: 32}, Data: "digits", Seed: 1, Devices: "cpu",
		Update: kernels.SGD{Momentum: 0.9},
	}
	switch {
	case models.OfText(model):
		s.Data = "opticks"
	case models.Segments(model):
		s.Data = "shapes"
	}
	if model == "inception_v3" { // which takes no smaller images
		s.Config.Image = 75
	}
	return s
}

// smallestPlan returns the smallest limit of any kind of plan, as fit says it.
func smallestPlan(t *testing.T, j *Job) int64 {
	t.Helper()
	least := int64(math.MaxInt64)
	for _, k := range planner.Kinds(j.Work.Chain()) {
		bytes, err := j.Smallest(t.Context(), k)
		must(t, err)
		least = min(least, bytes)
	}
	return least
}

// Where a plan fits, every op can be measured: nothing that a profile runs needs more than the smallest plan of any kind.
func TestMeasuringNeedsNoMoreThanTheSmallestPlan(t *testing.T) {
	t.Parallel()
	exercises := 0
	sizes := strings.NewReplacer("-B-C", "-1-8", "-L-F", "-3-16") // of names that stand for many
	for _, model := range models.Names() {
		model = sizes.Replace(model)
		j := opened(t, windowSpec(model))
		least := smallestPlan(t, j)
		target, err := j.Target()
		must(t, err)
		all, err := measure.Exercises(j.Work, target.Library, least, false)
		if err != nil {
			t.Errorf("%s: %v", model, err)
		}
		for _, x := range all {
			if x.Extent > least {
				t.Errorf("%s: an exercise takes %d, the smallest plan %d", model, x.Extent, least)
			}
		}
		exercises += len(all)
		must(t, target.Device.Close())
	}
	if exercises < 100 {
		t.Errorf("%d exercises", exercises)
	}
}

// smallestCycle returns the least arena of a plan that moves weights, gradients and state, too.
func smallestCycle(t *testing.T, j *Job) int64 {
	t.Helper()
	least, err := newFitter(j, FitRequest{}).least(t.Context(), j, planner.MovingState().Strategies[0], 0)
	must(t, err)
	bytes, _ := least.extent()
	return bytes
}

// Windows hold no optimizer state, so that a layer can be measured in about the memory of the smallest plan that keeps state on the host.
// Where that plan moves activations out of a layer's way, too, a window takes up to a third more.
func TestMeasuringWithoutState(t *testing.T) {
	t.Parallel()
	for model, most := range map[string]float64{"gpt2": 1.01, "vgg16": 1.01, "tinyllama": 1.01, "densenet121": 1.15, "mlp": 1.34, "resnet20": 1} {
		spec := windowSpec(model)
		spec.Update = kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
		j := opened(t, spec)
		least := smallestCycle(t, j)
		target, err := j.Target()
		must(t, err)
		limit := int64(most * float64(least))
		if _, err = measure.Exercises(j.Work, target.Library, limit, false); err != nil {
			t.Errorf("%s, whose smallest plan takes %d: %v", model, least, err)
		}
		if whole := j.Work.StaticBytes(); limit >= whole {
			t.Errorf("%s: %d of %d bytes of weights and state: a poor test", model, limit, whole)
		}
		must(t, target.Device.Close())
	}
}

// A model of branches is measured in the memory of its smallest plan, link included, and every op of every layer has a time.
func TestBranchesAreMeasuredInTheSmallestMemory(t *testing.T) {
	t.Parallel()
	j := opened(t, windowSpec("siamese"))
	c, err := j.Profile(t.Context(), Measure{Repeats: 1, Limit: smallestPlan(t, j)})
	must(t, err)
	must(t, sameSizes(c, j.Work.Chain()))
	untimed := func(l chain.Layer) bool { return !(l.ForwardS > 0 && l.BackwardS > 0) }
	for i, l := range c.Layers {
		if untimed(l) || (l.DiscardForwardS == nil) != (i == c.Len()-1) {
			t.Errorf("layer %d (%s) is not measured: %+v", i+1, l.Name, l)
		}
	}
	if !(executor.UpdateSeconds(c) > 0 && c.Bandwidth > 0) {
		t.Errorf("update %v s, link %v B/s", executor.UpdateSeconds(c), c.Bandwidth)
	}
}
