package train

import (
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
)

// A siamese network learns under a memory limit which pairs are of one class: far better than chance after a few hundred
// steps, to the bits that store-all leaves.
func TestSiameseLearns(t *testing.T) {
	t.Parallel()
	steps, accuracy := 300, 0.75
	if testing.Short() {
		steps, accuracy = 10, 0
	}
	j := opened(t, Spec{
		Model: "siamese", Config: models.Config{Batch: 32, Image: 8}, Data: "digits", Seed: 1, Devices: "cpu",
		Update: kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	})
	all, err := j.StoreAllBytes()
	must(t, err)
	c, err := j.Profile(t.Context(), Measure{Repeats: 1})
	must(t, err)
	s, err := planner.Lookup("multi-empty")
	must(t, err)
	do := func(limit int64) *Outcome {
		p, err := executor.Plan(t.Context(), j.Work, c, s, limit, strategy.Options{})
		must(t, err)
		out, err := (&Run{Job: j, Chain: c, Plan: j.SequenceOf(c, p, limit), Steps: steps, Rate: Rate{Peak: 0.001}}).Do(t.Context())
		must(t, err)
		if out.MeasuredPeakBytes != out.PredictedPeakBytes || out.MeasuredPeakBytes > limit {
			t.Errorf("peak %d, predicted %d, limit %d", out.MeasuredPeakBytes, out.PredictedPeakBytes, limit)
		}
		return out
	}
	out := do(j.Work.StaticBytes() + (all-j.Work.StaticBytes())*6/10)
	if len(out.Measured.Intervals) <= 2*c.Len() {
		t.Errorf("%d ops recompute nothing", len(out.Measured.Intervals))
	}
	if float64(out.Accuracy) < accuracy || out.TestSamples != 360 {
		t.Errorf("accuracy %v of %d pairs after %d steps", out.Accuracy, out.TestSamples, steps)
	}
	steps = 5
	if a, b := do(all), do(j.Work.StaticBytes()+(all-j.Work.StaticBytes())*6/10); a.WeightsSHA256 != b.WeightsSHA256 {
		t.Error("the limit changes bits")
	}
}

// The images of a batch of pairs become those of the first branch, then those of the second.
func TestSeparate(t *testing.T) {
	t.Parallel()
	f := feeds[float32]{pairs: make([]float32, 12)}
	images := []float32{0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15}
	f.separate(images, 3)
	for i, v := range images {
		if want := float32(i%6 + i/6*10); v != want {
			t.Fatalf("%v", images)
		}
	}
}
