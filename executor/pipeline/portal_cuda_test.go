//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// Skips that go straight from one virtual GPU to another are the same numbers.
func TestGPUsWithPortals(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	const microbatches = 4
	first := gpus(t, 3)
	w, err := Compile(skipping(t), first[0].Library, optimizer)
	must(t, err)
	for _, name := range []string{"1f1b-flush", "gpipe-checkpoint"} {
		c := costs(w, 3, 3)
		plan := planFor(t, name, c, pipeline.Options{Microbatches: microbatches})
		straight, s := straightened(t, w, first[0].Library, c, plan, pipeline.Late)
		if straight == nil {
			t.Fatalf("%s has no portals", name)
		}
		run := func(on []executor.Target, w *Workload, plan *pipeline.Plan) *pipelinetest.Outcome {
			e, out := trainedOn(t, on, w, c, plan, microbatches, Options{})
			out.Tensors = tensors(t, e)
			return out
		}
		same(t, run(gpus(t, 3), w, plan), run(gpus(t, 3), s, straight))
	}
}
