package flush

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// fits is a random request of a schedule that recomputes, in a share of the memory in which nothing is recomputed, and that placement's fitting.
func fits(t *testing.T, rnd *rand.Rand, r *recipe) (pipeline.Request, *fitting) {
	t.Helper()
	for {
		c := pipelinetest.Chain(rnd, 4+rnd.IntN(3), false)
		for i := range c.Layers {
			c.Layers[i].ForwardOverheadBytes, c.Layers[i].BackwardOverheadBytes = rnd.Int64N(4), rnd.Int64N(4)
			c.Layers[i].SavedBytes += rnd.Int64N(20)
		}
		p := pipelinetest.Platform(rnd, 2)
		q := pipeline.Request{Chain: c, Platform: p.WithMemory(pipeline.NoLimit), Options: pipeline.Options{Microbatches: 2 * (1 + rnd.IntN(2)), Accounting: pipeline.Saved}}
		plan, err := r.solve(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Platform = p.WithMemory(int64((0.4 + 0.6*rnd.Float64()) * float64(slices.Max(plan.PerDevicePeak))))
		placed, err := r.prepare(q)
		if err != nil {
			t.Fatal(err)
		}
		x := newFitting(t.Context(), r, q, placed, plan)
		ways := 1
		for _, w := range x.ways {
			ways *= len(w)
		}
		if ways <= 200 {
			return q, x
		}
	}
}

// mixes reports whether stages with ops and without have a device together, or may have one.
func (x *fitting) mixes(number []int) bool {
	return slices.ContainsFunc(x.together(), func(ranks []int) bool {
		stages := x.on(ranks)
		return slices.ContainsFunc(stages, func(s int) bool { return (number[s] == 0) != (number[stages[0]] == 0) })
	})
}

// Of all ways in which the stages of a schedule can run in the memory, the plan has the fastest or nearly so. It has one whenever there are any.
// Only this test finds that a schedule refuses where some ways fit, or recomputes far more than the best.
func TestFittedStagesAreNearTheBest(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(45, 1))
	compared, refused, recomputing, sum, worst := 0, 0, 0, 0.0, 1.0
	for n := range 120 {
		r := []recipe{interleaved(), loopedBFS(), chimera()}[n%3]
		q, x := fits(t, rnd, &r)
		best, number := math.Inf(1), make([]int, len(x.ways))
		for {
			if plan, err := x.plan(number); err == nil && !x.mixes(number) {
				best = min(best, plan.Predicted.Makespan)
			}
			s := 0
			for s < len(number) && number[s] == len(x.ways[s])-1 {
				number[s], s = 0, s+1
			}
			if s == len(number) {
				break
			}
			number[s]++
		}
		plan, err := r.solve(t.Context(), q)
		if math.IsInf(best, 1) {
			if !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("request %d, %s: %v, and no ways fit", n, r.name, err)
			}
			refused++
			continue
		}
		if err != nil {
			t.Errorf("request %d, %s: %v, there are ways with %g s", n, r.name, err, best)
			continue
		}
		if plan.HasOps() {
			recomputing++
		}
		compared++
		ratio := plan.Predicted.Makespan / best
		sum, worst = sum+ratio, max(worst, ratio)
		if ratio < 1-1e-9 {
			t.Errorf("request %d, %s: %g s, the best of all ways %g s", n, r.name, plan.Predicted.Makespan, best)
		}
	}
	t.Logf("%d compared, %d of them recompute, %d refused: on the mean %.4f of the best, at worst %.3f", compared, recomputing, refused, sum/float64(compared), worst)
	if compared < 60 || recomputing < 50 || refused < 10 {
		t.Error("too few of some kind")
	}
	if mean := sum / float64(compared); mean > 1.02 || worst > 1.4 {
		t.Errorf("on the mean %.4f of the best, at worst %.3f", mean, worst)
	}
}
