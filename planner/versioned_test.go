package planner_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// TestVerticalSyncPlans: a plan with vertical_sync passes the check, which counts the copies of the first stage's versions for all stages, and
// says no copies of its own. No stage needs fewer than it has in flight. A request with more memory than any plan needs is never refused.
func TestVerticalSyncPlans(t *testing.T) {
	t.Parallel()
	plans, refused, deep := 0, 0, 0
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 32))
		r := pipeline.Request{Chain: pipelinetest.Chain(rng, 2+rng.IntN(5), rng.IntN(2) == 0), Platform: pipelinetest.Platform(rng, 2+rng.IntN(3))}
		r.Versions = pipeline.VerticalSync
		roomy := rng.IntN(2) == 0
		if r.Platform = r.Platform.WithMemory(pipeline.NoLimit); !roomy {
			r.Platform = r.Platform.WithMemory(rng.Int64N(400))
		}
		for _, s := range planner.Pipelines() {
			if s.Type == pipeline.Flushing || slices.Contains([]string{"ilp", "milp", "ampnet", "pipemare", "eager"}, s.Name) {
				continue
			}
			plan, err := s.Solve(t.Context(), r)
			if errors.Is(err, pipeline.ErrInfeasible) && !roomy {
				refused++
				continue
			}
			if err != nil {
				t.Errorf("seed %d, %s: %v", seed, s.Name, err)
				continue
			}
			report, err := pipeline.Check(r.Chain, r.Platform, plan)
			if err != nil || plan.Versions != pipeline.VerticalSync || len(plan.WeightCopies) > 0 || !slices.Equal(plan.PerDevicePeak, report.PerDevicePeak) {
				t.Errorf("seed %d, %s: %v, versions %s, copies %v, peaks %v and %v", seed, s.Name, err, plan.Versions, plan.WeightCopies, plan.PerDevicePeak, report.PerDevicePeak)
				continue
			}
			plans++
			if report.NCA[0] > 2 {
				deep++
			}
		}
	}
	if plans < 500 || refused < 100 || deep < 100 {
		t.Errorf("%d plans, %d of them with more than 2 minibatches in the first stage, %d refusals", plans, deep, refused)
	}
}
