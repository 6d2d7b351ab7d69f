//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	cuda "plimsoll/runtime/cuda/driver"
)

// GPUs whose state the host has train the bits of those that have it, clipped or not.
func TestHostStateOfGPUs(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	w, err := Compile(wideModel(t), gpus(t, 1)[0].Library, optimizer)
	must(t, err)
	c := costs(w, 2, 3)
	for name, p := range sharedPlans(t, c) {
		for _, norm := range []float32{0, 0.05} {
			var runs []*pipelinetest.Outcome
			for _, hosted := range []bool{false, true} {
				of := p
				if hosted {
					of = onHostState(p)
				}
				e, run := guarded(t, gpus(t, 2), w, c, of, 3, Options{MaxNorm: norm})
				must(t, e.Run(t.Context(), 3*p.Repeats()))
				run.Tensors = tensors(t, e)
				runs = append(runs, run.Outcome)
			}
			if d := runs[0].FirstDifference(runs[1]); d != "" {
				t.Errorf("%s, norm %g: %s", name, norm, d)
			}
		}
	}
}
