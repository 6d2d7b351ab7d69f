//go:build cuda && linux && amd64

package pipeline

import (
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	cuda "plimsoll/runtime/cuda/driver"
)

// Branches that meet train the weights of the sequential reference on a GPU, with batches that are staged and with others, as a graph
// and call by call.
func TestGPUsJoinStagedBranches(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	const steps = 3
	for name, m := range joins(t) {
		w, err := Compile(m, gpus(t, 1)[0].Library, optimizer)
		must(t, err)
		staged := w.Stage(testPalette())
		c := counted(w, 1)
		s, err := planner.Lookup("multi-empty")
		must(t, err)
		full, err := staged.Extent(staged.StoreAll())
		must(t, err)
		limit := staged.StaticBytes() + (full-staged.StaticBytes())*8/10
		plan, err := executor.Plan(t.Context(), staged, c.Chain, s, limit, strategy.Options{})
		must(t, err)
		want, predicted := unstaged(t, gpus(t, 1)[0], m, steps)
		for i, x := range []*Workload{w, staged, staged} {
			out := &pipelinetest.Outcome{}
			e, err := New(x, gpus(t, 1), Costs{c.Chain, plan.Platform}, plan, Options{
				Limits: []int64{limit}, Feed: pixels{feedOf(m)}, Rate: rate, Seed: 7, NoGraph: i == 2,
				Done: func(r Result) { out.Losses, out.Correct = append(out.Losses, r.Loss), append(out.Correct, r.Correct) },
			})
			must(t, err)
			if calls := followingCalls(e); (calls > 0) != (i == 2) {
				t.Errorf("%s, workload %d: %d calls follow each other", name, i, calls)
			}
			logits := inRuns(t, e, out, steps)
			if d := want.FirstDifference(out); d != "" {
				t.Errorf("%s, workload %d: %s", name, i, d)
			}
			if !slices.EqualFunc(predicted, logits, func(a, b []float32) bool { return slices.Equal(a, b) }) {
				t.Errorf("%s, workload %d: other predictions", name, i)
			}
		}
	}
}
