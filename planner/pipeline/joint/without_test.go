package joint

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
)

// TestWithout: what a plan must not have it has not, and it is no faster than one that may have everything.
func TestWithout(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 5))
	several := func(p *pipeline.Plan) bool { return len(p.Stages) > 1 }
	replicas := func(p *pipeline.Plan) bool {
		return slices.ContainsFunc(p.Stages, func(st pipeline.Stage) bool { return len(st.Devices) > 1 })
	}
	kinds := []struct {
		Ingredients
		has func(p *pipeline.Plan) bool
	}{{Ingredients{Stages: true}, several}, {Ingredients{Replicas: true}, replicas}, {Ingredients{Recomputation: true}, (*pipeline.Plan).HasOps}}
	with, fit, slower := make([]int, len(kinds)), make([]int, len(kinds)), make([]int, len(kinds))
	for range 60 {
		r := request(rng, 6, 4)
		best, err := solve(t.Context(), r)
		if err != nil && !errors.Is(err, pipeline.ErrInfeasible) {
			t.Fatal(err)
		}
		for i, x := range kinds {
			plan, err := Without(t.Context(), r, x.Ingredients)
			if err != nil && !errors.Is(err, pipeline.ErrInfeasible) {
				t.Fatal(err)
			}
			if best != nil && x.has(best) {
				with[i]++
			}
			if plan == nil {
				continue
			}
			fit[i]++
			switch {
			case x.has(plan):
				t.Errorf("without %+v: %+v", x.Ingredients, plan.Stages)
			case best == nil || plan.SecondsPerMinibatch() < best.SecondsPerMinibatch()*(1-1e-5):
				t.Errorf("without %+v %v s, with all %+v", x.Ingredients, plan.SecondsPerMinibatch(), best)
			case plan.SecondsPerMinibatch() > best.SecondsPerMinibatch()*(1+1e-5):
				slower[i]++
			}
		}
	}
	for i, x := range kinds {
		if with[i] < 5 || fit[i] < 10 || slower[i] < 3 {
			t.Errorf("%+v: %d plans have them, %d fit without, %d of them slower", x.Ingredients, with[i], fit[i], slower[i])
		}
	}
}
