package planner_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// TestVerticalSyncPlans: a plan with vertical_sync passes the check, which counts the copies of the first stage's versions for all stages, and
// says no copies of its own. No stage has replicas, and no bound is above a plan. A request with more memory than any plan needs is refused for
// replicas alone.
func TestVerticalSyncPlans(t *testing.T) {
	t.Parallel()
	plans, refused, replicated, deep := 0, 0, 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 32))
		r := pipeline.Request{Chain: pipelinetest.Chain(rng, 2+rng.IntN(5), rng.IntN(2) == 0), Platform: pipelinetest.Platform(rng, 2+rng.IntN(3))}
		r.Versions = pipeline.VerticalSync
		roomy := rng.IntN(2) == 0
		if r.Platform = r.Platform.WithMemory(pipeline.NoLimit); !roomy {
			r.Platform = r.Platform.WithMemory(rng.Int64N(400))
		}
		fastest, bound := math.Inf(1), 0.0
		for _, s := range planner.Pipelines() {
			if s.Type == pipeline.Flushing || slices.Contains([]string{"ilp", "milp", "eager"}, s.Name) { // slow ones, and one that finds no period at times
				continue
			}
			plan, err := s.Solve(t.Context(), r)
			if s.Name == "ampnet" || s.Name == "pipemare" { // for the latest weights
				if err == nil {
					t.Errorf("seed %d, %s plans with vertical_sync", seed, s.Name)
				}
				continue
			}
			if errors.Is(err, pipeline.ErrPlan) && (s.Name == "joint" || s.Name == "pipedream") {
				replicated++
				continue
			}
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
			fastest = min(fastest, report.PerMinibatch)
			bound = max(bound, plan.Predicted.LowerBound)
			for i, stage := range plan.Stages {
				if len(stage.Devices) > 1 {
					t.Errorf("seed %d, %s: stage %d is on devices %v", seed, s.Name, i+1, stage.Devices)
				}
			}
			plans++
			if report.NCA[0] > 2 {
				deep++
			}
		}
		if bound > fastest*(1+1e-9) {
			t.Errorf("seed %d: a bound of %g, and a plan that takes %g", seed, bound, fastest)
		}
	}
	if plans < 500 || refused < 100 || deep < 100 || replicated < 50 {
		t.Errorf("%d plans, %d of them with more than 2 minibatches in the first stage, %d refusals, %d of replicas", plans, deep, refused, replicated)
	}
}
