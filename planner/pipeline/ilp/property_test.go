package ilp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// Random chains, platforms whose devices and links differ, versions and accountings: both checkers accept every plan; it is never
// slower than contiguous and madpipe; a refusal names the smallest memory.
func TestILPPlans(t *testing.T) {
	t.Parallel()
	need(t)
	count := 80
	if testing.Short() {
		count = 30
	}
	rng := rand.New(rand.NewPCG(1, 6))
	var cases []pipelinetest.Case
	refused, late, better := 0, 0, 0
	for range count {
		r := request(rng, 1+rng.IntN(4), 1+rng.IntN(3))
		r.TimeLimit = 3 * time.Second
		plan, err := solve(context.Background(), r)
		var small *pipeline.InfeasibleError
		var unfinished *pipeline.UnfinishedError
		switch {
		case errors.As(err, &small):
			refused++
			leastMemory(t, r, small)
			continue
		case errors.As(err, &unfinished) && unfinished.Best != nil:
			late++
			plan = unfinished.Best
		case err != nil:
			t.Errorf("%v of %+v on %+v", err, r.Chain, r.Platform)
			continue
		}
		for _, other := range []string{"contiguous", "madpipe"} {
			if p, err := with(t, other, r); err == nil && p.Period < plan.Period {
				t.Errorf("%s has %v, ilp %v: %+v on %+v", other, p.Period, plan.Period, r.Chain, r.Platform)
			} else if err != nil || plan.Period < p.Period*(1-1e-9) {
				better++
			}
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if len(cases)+refused != count || refused < count/20 || late > count/10 || better == 0 {
		t.Fatalf("%d plans, %d refused, %d not proved, better than another in %d", len(cases), refused, late, better)
	}
	t.Logf("%d plans, %d refused, %d not proved, better than another in %d", len(cases), refused, late, better)
	pipelinetest.Accept(t, cases)
}

// Windows improve the plan that runs on the first allocation that fits, and never make one slower.
func TestILPNear(t *testing.T) {
	t.Parallel()
	need(t)
	rng := rand.New(rand.NewPCG(3, 6))
	var cases []pipelinetest.Case
	improved := 0
	for range 3 {
		r := pipeline.Request{Chain: pipelinetest.Chain(rng, 5, false), Platform: pipeline.NewPlatform(3, pipeline.NoLimit, 10)}
		s := searchOf(t, r)
		few, err := s.fewest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		r.Platform = r.Platform.WithMemory(few.excess * 6 / 5)
		r.TimeLimit = 4 * time.Second
		s = searchOf(t, r)
		first, err := s.packed(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := s.near(context.Background(), first)
		if err != nil || plan.Period > first.Period {
			t.Fatalf("%v, %v; began with %v", plan, err, first.Period)
		}
		if plan.Period < first.Period*(1-1e-9) {
			improved++
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if improved == 0 {
		t.Error("no plan was improved by windows")
	}
	pipelinetest.Accept(t, cases)
}

// The smallest period of random orders is the one below which they have a cycle that needs more, as bisection finds it.
func TestSmallest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 6))
	possible := 0
	for range 500 {
		n := 2 + rng.IntN(6)
		var edges []edge
		for range n + rng.IntN(2*n) {
			edges = append(edges, edge{rng.IntN(n), rng.IntN(n), float64(rng.IntN(5)), rng.IntN(3)})
		}
		const low, enough = 1.0, 1e6
		period, start, ok := smallest(edges, n, low)
		if _, cycle := earliest(edges, n, enough); (cycle == nil) != ok {
			t.Fatalf("%+v: possible %v, but at any period %v", edges, ok, cycle)
		}
		if !ok {
			continue
		}
		possible++
		for _, e := range edges {
			if start[e.y] < start[e.x]+e.seconds-float64(e.periods)*period-1e-9 {
				t.Fatalf("%+v: edge %+v is broken by %v", edges, e, start)
			}
		}
		if _, cycle := earliest(edges, n, period*(1-1e-6)); period > low && cycle == nil {
			t.Fatalf("%+v: %v, but less works", edges, period)
		}
	}
	if possible < 100 || possible == 500 {
		t.Fatalf("%d of 500 possible", possible)
	}
}

// The same request has the same plan where the search ends before its time.
func TestILPIsDeterministic(t *testing.T) {
	t.Parallel()
	need(t)
	rng := rand.New(rand.NewPCG(4, 6))
	for range 5 {
		r := request(rng, 4, 2)
		first, err := solve(context.Background(), r)
		again, errAgain := solve(context.Background(), r)
		if (err == nil) != (errAgain == nil) || err == nil && (first.Period != again.Period || len(first.Tasks) != len(again.Tasks)) {
			t.Errorf("%v, %v; then %v, %v", first, err, again, errAgain)
		}
	}
}

// Rows of sums: a variable that appears twice is in the row once, with both coefficients.
func TestSums(t *testing.T) {
	t.Parallel()
	s := of(1).plus(2, of(0)).plus(3, of(1)).plus(-1, number(4))
	terms := s.collected()
	if len(terms) != 2 || terms[0].Coef != 2 || terms[1].Coef != 4 || s.constant != -4 || s.most() != 2 {
		t.Errorf("%+v of %+v", terms, s)
	}
	if x := of(0).plus(-1, of(0)).most(); math.Abs(x) != 0 {
		t.Errorf("x - x is at most %v", x)
	}
}

// A program refuses no schedule that exists: given the devices, the period and, as limits, the very peaks of a plan, it has a solution. The
// answer has that period. It also has that memory, unless gradients are larger than activations.
func TestILPProgramsTakePlans(t *testing.T) {
	t.Parallel()
	need(t)
	count := 300
	if testing.Short() {
		count = 100
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var cases []pipelinetest.Case
	asked, beyond := 0, 0
	for range count {
		r := request(rng, 2+rng.IntN(4), 1+rng.IntN(3))
		devices := make([]int, r.Chain.Len())
		for l := range devices {
			devices[l] = rng.IntN(r.Platform.Devices)
		}
		plan, err := searchOf(t, r).list(context.Background(), devices)
		if errors.Is(err, pipeline.ErrInfeasible) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		p := *r.Platform
		p.Memory = plan.PerDevicePeak
		r.Platform = &p
		s, period := searchOf(t, r), plan.Period*(1+1e-4)
		g := newProgram(s.instance, period, false, devices)
		solution, err := s.run(context.Background(), &g.Program, 1)
		asked++
		if err != nil {
			t.Errorf("%v: %v on %+v has a period of %v: %+v", err, devices, r.Platform, plan.Period, r.Chain)
			continue
		}
		answer, err := pipeline.Finish(name, r, g.plan(solution))
		switch {
		case errors.Is(err, pipeline.ErrInfeasible):
			beyond++
		case err != nil || answer.Period > period*(1+1e-5):
			t.Errorf("%v, %v; asked for %v", answer, err, period)
		default:
			cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: answer})
		}
	}
	if asked < count/3 || beyond > asked/2 || len(cases)+beyond != asked {
		t.Fatalf("%d programs, %d plans, %d beyond the memory", asked, len(cases), beyond)
	}
	t.Logf("%d programs, %d plans, %d beyond the memory", asked, len(cases), beyond)
	pipelinetest.Accept(t, cases)
}
