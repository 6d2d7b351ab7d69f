//go:build cuda && linux && amd64

package pipeline

import (
	"slices"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// GPUs that divide gradients, and weights, train the bits of those that do not, and evaluate to the same logits.
func TestPassingOfGPUs(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	w, err := Compile(wideModel(t), gpus(t, 1)[0].Library, optimizer)
	must(t, err)
	c := costs(w, 2, 3)
	whole := dataParallel(c, 2)
	plans := []*pipeline.Plan{whole}
	for _, zero := range passes {
		plans = append(plans, dividedBy(t, c, whole, 3, zero))
	}
	var runs []*pipelinetest.Outcome
	var logits [][]float32
	for i, p := range plans {
		e, run := guarded(t, gpus(t, 2), w, c, p, 3, Options{MaxNorm: 0.05})
		must(t, e.Run(t.Context(), 3*p.Repeats()))
		var all []float32
		must(t, e.Evaluate(t.Context(), feedOf(w.Model), 2, func(_ int, x []float32) error {
			all = append(all, x...)
			return nil
		}))
		run.Tensors = tensors(t, e)
		runs, logits = append(runs, run.Outcome), append(logits, all)
		if d := runs[0].FirstDifference(runs[i]); d != "" || !slices.Equal(logits[0], all) {
			t.Errorf("zero %d: %s; logits %v, want %v", p.Zero, d, all, logits[0])
		}
	}
}
