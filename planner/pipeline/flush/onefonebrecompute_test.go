package flush

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/pipeline/recompute"
)

// tight is a random request of few layers in a share of the memory in which nothing is recomputed.
func tight(t *testing.T, rnd *rand.Rand) pipeline.Request {
	t.Helper()
	devices := 1 + rnd.IntN(3)
	c := pipelinetest.Chain(rnd, devices+2+rnd.IntN(4), false)
	for i := range c.Layers {
		c.Layers[i].ForwardOverheadBytes, c.Layers[i].BackwardOverheadBytes = rnd.Int64N(4), rnd.Int64N(4)
		c.Layers[i].SavedBytes += rnd.Int64N(20)
	}
	p := pipelinetest.Platform(rnd, devices)
	q := pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Microbatches: 1 + rnd.IntN(6), Accounting: pipeline.Saved}}
	plan, err := recompute1F1B().Solve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.Platform = p.WithMemory(int64((0.3 + 0.7*rnd.Float64()) * float64(slices.Max(plan.PerDevicePeak))))
	return q
}

// planner returns the search of a request, before its first division.
func planner(t *testing.T, base *recipe, q pipeline.Request) *recomputing1F1B {
	t.Helper()
	p, err := base.prepare(q)
	if err != nil {
		t.Fatal(err)
	}
	x := &recomputing1F1B{Request: q, sums: p.sums, micros: p.micros, known: map[rowKey][]stageWay{}}
	x.seqs = recompute.New(x.sums, slices.Max(q.Platform.Memory))
	return x
}

// No schedule of stages takes less than cut.least says, by which stages are left out.
// Only this test finds a bound that leaves out the fastest plan.
func TestNoScheduleIsBelowItsLeast(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(41, 2))
	compared, recomputing, equal := 0, 0, 0
	for range 400 {
		q, base := tight(t, rnd), oneForwardOneBackward()
		x := planner(t, &base, q)
		for n := 1; n <= q.Platform.Devices; n++ {
			c, bound := newCut(x, n), x.longest(n)
			for range mostCuts {
				if !c.cut(bound) {
					break
				}
				bound = c.period * (1 - 1e-9)
				stages := c.stages()
				d, err := x.draft(&base, stages)
				if err != nil {
					t.Fatal(err)
				}
				if c.least() > d.makespan {
					t.Errorf("%v take %g s, at least %g", stages, d.makespan, c.least())
				}
				if compared++; c.least() > d.makespan*(1-1e-6) {
					equal++
				}
				if slices.ContainsFunc(stages, func(st pipeline.Stage) bool { return len(st.Ops) > 0 }) {
					recomputing++
				}
			}
		}
	}
	t.Logf("%d compared, %d of them recompute, %d take no longer", compared, recomputing, equal)
	if recomputing < 200 || equal < 50 {
		t.Error("too few of some kind")
	}
}

// everyWay calls do for all stages of all numbers of devices, each with its fastest sequence.
func everyWay(t *testing.T, q pipeline.Request, do func(*pipeline.Plan)) {
	t.Helper()
	base := oneForwardOneBackward()
	x := planner(t, &base, q)
	var stages func(n, first int, before []pipeline.Stage)
	stages = func(n, first int, before []pipeline.Stage) {
		if len(before) == n {
			if given := x.given(before); first == q.Chain.Len()+1 && given != nil {
				d, err := x.draft(&base, given)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := d.plan()
				if err != nil {
					t.Fatal(err)
				}
				do(plan)
			}
			return
		}
		for last := first; last <= q.Chain.Len(); last++ {
			stages(n, last+1, append(slices.Clone(before), pipeline.Stage{First: first, Last: last, Devices: []int{len(before)}}))
		}
	}
	for n := 1; n <= q.Platform.Devices; n++ {
		stages(n, 1, nil)
	}
}

// Of all stages, each with its fastest sequence, the plan has the fastest or nearly so; it has one whenever there are any.
// Only this test finds that 1f1b-recompute refuses where some division fits, or divides far worse than the best.
func TestRecomputingStagesAreNearTheBest(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(41, 1))
	compared, refused, recomputing, sum, worst := 0, 0, 0, 0.0, 1.0
	for n := range 300 {
		q := tight(t, rnd)
		best := math.Inf(1)
		everyWay(t, q, func(p *pipeline.Plan) { best = min(best, p.Predicted.Makespan) })
		plan, err := recompute1F1B().Solve(t.Context(), q)
		if math.IsInf(best, 1) {
			if !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("request %d: %v, and no stages fit", n, err)
			}
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("request %d: %v, there are stages with %g s", n, err, best)
		}
		if slices.ContainsFunc(plan.Stages, func(st pipeline.Stage) bool { return len(st.Ops) > 0 }) {
			recomputing++
		}
		compared++
		ratio := plan.Predicted.Makespan / best
		sum, worst = sum+ratio, max(worst, ratio)
		if ratio < 1-1e-9 {
			t.Errorf("request %d: %g s, the best of all stages %g s", n, plan.Predicted.Makespan, best)
		}
	}
	t.Logf("%d compared, %d of them recompute, %d refused: on the mean %.4f of the best, at worst %.3f", compared, recomputing, refused, sum/float64(compared), worst)
	if compared < 150 || recomputing < 80 || refused < 10 {
		t.Error("too few of some kind")
	}
	if mean := sum / float64(compared); mean > 1.01 || worst > 1.25 {
		t.Errorf("on the mean %.4f of the best, at worst %.3f", mean, worst)
	}
}

// It is never slower than 1f1b-flush where that fits, and fits wherever its error says.
// Only this test finds a plan of 1f1b-recompute that is slower than 1f1b-flush in the same memory.
func TestRecomputing1F1BIsNeverSlower(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(41, 2))
	compared, faster, refused := 0, 0, 0
	for n := range 200 {
		q := request(rnd)
		roomy := q.Platform
		whole, err := lookup(t, "1f1b-flush").Solve(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		need := slices.Max(whole.PerDevicePeak)
		q.Platform = roomy.WithMemory(need)
		plan, err := recompute1F1B().Solve(t.Context(), q)
		if err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		compared++
		if plan.Predicted.Makespan > whole.Predicted.Makespan*(1+1e-9) {
			t.Errorf("request %d: %g s, 1f1b-flush takes %g", n, plan.Predicted.Makespan, whole.Predicted.Makespan)
		}
		if plan.Predicted.Makespan < whole.Predicted.Makespan*(1-1e-9) {
			faster++
		}
		q.Platform = roomy.WithMemory(need / 4)
		var small *pipeline.InfeasibleError
		if _, err := recompute1F1B().Solve(t.Context(), q); !errors.As(err, &small) {
			continue
		}
		refused++
		q.Platform = roomy.WithMemory(small.Smallest)
		if _, err := recompute1F1B().Solve(t.Context(), q); err != nil {
			t.Errorf("request %d in %d bytes: %v", n, small.Smallest, err)
		}
	}
	if compared < 200 || faster < 50 || refused < 20 {
		t.Errorf("%d compared, %d faster, %d refused", compared, faster, refused)
	}
}

// Weights may have copies of their own in each stage: then there are as many stages as devices, and each counts its own.
func TestRecomputingWithCopiesOfEachStage(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(41, 3))
	planned, refused := 0, 0
	for n := range 200 {
		q := tight(t, rnd)
		if q.Platform.Devices == 1 {
			continue
		}
		for range q.Platform.Devices {
			q.WeightCopies = append(q.WeightCopies, float64(rnd.IntN(8))/2)
		}
		_, err := recompute1F1B().Solve(t.Context(), q)
		if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
			refused++
			q.Platform = q.Platform.WithMemory(small.Smallest)
			_, err = recompute1F1B().Solve(t.Context(), q)
		}
		if err != nil {
			t.Errorf("request %d in %d bytes: %v", n, q.Platform.Memory, err)
		}
		planned++
	}
	if planned < 100 || refused < 20 {
		t.Errorf("%d planned, %d of them refused first", planned, refused)
	}
}

// Layers that take no time have a plan, or none, however long their messages take.
func TestRecomputingWithoutTimes(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "bytes", InputBytes: 8}
	for range 4 {
		c.Layers = append(c.Layers, chain.Layer{OutputBytes: 8, SavedBytes: 16, GradientBytes: 8})
	}
	roomy := pipeline.NewPlatform(2, pipeline.NoLimit, 1)
	q := pipeline.Request{Chain: c, Platform: roomy, Options: pipeline.Options{Microbatches: 4, Accounting: pipeline.Saved}}
	if _, err := recompute1F1B().Solve(t.Context(), q); err != nil {
		t.Error(err)
	}
	q.Platform = roomy.WithMemory(1)
	if _, err := recompute1F1B().Solve(t.Context(), q); !errors.Is(err, pipeline.ErrInfeasible) {
		t.Errorf("in a byte: %v", err)
	}
}

// BenchmarkRecompute is 8 devices, 32 microbatches, from memory in which nothing is recomputed to memory in which nearly all is.
func BenchmarkRecompute(b *testing.B) {
	for _, n := range []int{25, 50, 110} {
		rnd := rand.New(rand.NewPCG(3, uint64(n)))
		c := &chain.Chain{Name: "long", InputBytes: 38 << 20}
		for l := range n {
			a := (int64(200<<20) + rnd.Int64N(50<<20)) >> min(4*l/n, 3)
			s := (0.5 + rnd.Float64()) * 1e-3
			c.Layers = append(c.Layers, chain.Layer{ForwardS: s, BackwardS: 2 * s, OutputBytes: a, SavedBytes: a * (2 + rnd.Int64N(3)), GradientBytes: a, WeightBytes: 1 << 20})
		}
		held := pipeline.NewCosts(c).Held(1, n, pipeline.Saved)
		for _, percent := range []int64{100, 40, 15} {
			b.Run(fmt.Sprintf("layers=%d/memory=%d%%", n, percent), func(b *testing.B) {
				q := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(8, held*percent/100, 12e9), Options: pipeline.Options{Microbatches: 32, Accounting: pipeline.Saved}}
				for b.Loop() {
					plan, err := recompute1F1B().Solve(b.Context(), q)
					if err != nil {
						b.Skip(err)
					}
					b.ReportMetric(plan.Predicted.Makespan/(pipeline.NewCosts(c).U(1, n)*(32+7)/8), "makespan/ideal")
				}
			})
		}
	}
}

// Where stages share weights, a plan that fits in some memory fits in more, and the smallest memory that is named suffices.
func TestRecomputingSharedWeightsInLeastMemory(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for cases := 0; cases < 8; {
		q := tight(t, rnd)
		n := q.Chain.Len()
		if q.Platform.Devices < 2 || n < 3 {
			continue
		}
		cases++
		q.Platform.NoBuffers = false
		q.Chain.Layers[0].WeightBytes = 1 + rnd.Int64N(12)
		q.Chain.Layers[n-2].WeightBytes, q.Chain.Layers[n-2].Update.WeightsOf = 0, 1
		in := func(memory int64) (*pipeline.Plan, error) {
			r := q
			r.Platform = q.Platform.WithMemory(memory)
			return recompute1F1B().Solve(t.Context(), r)
		}
		whole, err := in(pipeline.NoLimit)
		if err != nil {
			t.Fatal(err)
		}
		works := int64(-1)
		top := slices.Max(whole.PerDevicePeak)
		for memory := int64(0); memory <= top; memory += 1 + top/20 {
			_, err := in(memory)
			small, infeasible := errors.AsType[*pipeline.InfeasibleError](err)
			switch {
			case err == nil && works < 0:
				works = memory
			case err != nil && !infeasible:
				t.Fatal(err)
			case err != nil && works >= 0:
				t.Errorf("works in %d B, and not in %d: %v", works, memory, err)
			case err != nil && small.Smallest > 0:
				if _, err := in(small.Smallest); err != nil {
					t.Errorf("in %d B: %d are named: %v", memory, small.Smallest, err)
				}
			}
		}
	}
}
