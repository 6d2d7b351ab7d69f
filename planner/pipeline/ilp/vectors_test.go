package ilp

import (
	"context"
	"errors"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// The best of all allocations and schedules, of whole periods, where it is known by enumeration: the answer is as good, and better by
// less than a second. Where nothing fits, it says so.
func TestILPReachesOptimaOfTinyChains(t *testing.T) {
	t.Parallel()
	need(t)
	all, periods := tiny(t)
	var cases []pipelinetest.Case
	refused := 0
	for i, r := range all {
		plan, err := solve(context.Background(), r)
		if periods[i] == 0 {
			var small *pipeline.InfeasibleError
			if !errors.As(err, &small) {
				t.Errorf("%s: %v, %v; nothing fits", r.Chain.Name, plan, err)
				continue
			}
			leastMemory(t, r, small)
			refused++
			continue
		}
		if err != nil || plan.Period > periods[i]*(1+1e-9) || plan.Period <= periods[i]-1 {
			t.Errorf("%s: %v, %v; want %v", r.Chain.Name, plan, err, periods[i])
			continue
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if len(cases) != 84 || refused != 4 {
		t.Fatalf("%d plans, %d refused", len(cases), refused)
	}
	pipelinetest.Accept(t, cases)
}

// The programs alone, without the plans of other strategies: the search begins with one minibatch at a time, on an allocation that
// fits, and the list scheduler does not help.
func TestILPAlone(t *testing.T) {
	t.Parallel()
	need(t)
	all, periods := tiny(t)
	var cases []pipelinetest.Case
	questions := 0
	for i, r := range all {
		if periods[i] == 0 || i%2 != 0 {
			continue
		}
		s := searchOf(t, r)
		for period := periods[i] + 2; ; {
			questions++
			g := newProgram(s.instance, period, false, nil)
			solution, err := s.run(context.Background(), &g.Program, 1)
			if err != nil {
				t.Errorf("%s: %v at a period of %v, %v works", r.Chain.Name, err, period, periods[i])
				break
			}
			plan, err := pipeline.Finish(name, r, g.plan(solution))
			if err != nil || plan.Period > period*(1+1e-6) {
				t.Errorf("%s: %v, %v; asked for %v", r.Chain.Name, plan, err, period)
				break
			}
			if period = min(period, plan.Period) - 1; period < periods[i] {
				cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
				break
			}
		}
		g := newProgram(s.instance, periods[i]-1, false, nil)
		if solution, err := s.run(context.Background(), &g.Program, 1); err == nil {
			t.Errorf("%s: a schedule of %v, the best is %v: %+v", r.Chain.Name, periods[i]-1, periods[i], g.plan(solution))
		}
	}
	if len(cases) != 44 || questions <= 44 {
		t.Fatalf("%d plans of %d programs", len(cases), questions)
	}
	pipelinetest.Accept(t, cases)
}

// leastMemory tries the memory that a refusal names, and one byte less.
func leastMemory(t *testing.T, r pipeline.Request, e *pipeline.InfeasibleError) {
	t.Helper()
	r.Platform = r.Platform.WithMemory(e.Smallest)
	if _, err := solve(context.Background(), r); err != nil {
		t.Errorf("%s: refused with %v, and at that memory: %v", r.Chain.Name, e, err)
	}
	r.Platform = r.Platform.WithMemory(e.Smallest - 1)
	if _, err := solve(context.Background(), r); !errors.Is(err, pipeline.ErrInfeasible) {
		t.Errorf("%s: refused with %v, but with one byte less: %v", r.Chain.Name, e, err)
	}
}
