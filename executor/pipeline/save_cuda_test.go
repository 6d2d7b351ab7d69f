//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// Virtual GPUs save the states between segments, while they train on, as they are when each segment is a run.
func TestGPUsSaveWhileTheyTrain(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	on := gpus(t, 3)
	w, err := Compile(m, on[0].Library, optimizer)
	must(t, err)
	c := costs(w, 3, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash})
	book := &album{all: map[[2]int][]pipelinetest.Tensor{}}
	e, err := New(w, on, c, plan, Options{Feed: feedOf(m), Seed: 7, Rate: rate, Save: book.save})
	must(t, err)
	must(t, e.RunUntil(t.Context(), nil, Segment{3, true}, Segment{1, true}, Segment{2, false}, Segment{4, true}))
	e.Saved()
	must(t, book.err)
	want, err := New(w, gpus(t, 3), c, plan, Options{Feed: feedOf(m), Seed: 7, Rate: rate})
	must(t, err)
	for i, n := range []int{3, 1, 2, 4} {
		must(t, want.Run(t.Context(), n))
		if i == 2 {
			continue
		}
		if d := pipelinetest.FirstDifference(tensors(t, want), book.state(3, want.Done())); d != "" {
			t.Errorf("behind segment %d: %s", i, d)
		}
	}
	if len(book.all) != 9 {
		t.Errorf("%d stages were saved", len(book.all))
	}
}
