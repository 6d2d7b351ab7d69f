package pipeline_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// TestOrder: every task is once in the order of its device or link, periods follow each other in it, and the planned times follow it, for
// all strategies.
func TestOrder(t *testing.T) {
	t.Parallel()
	rng, ordered := rand.New(rand.NewPCG(29, 1)), 0
	for _, s := range planner.Pipelines() {
		if s.Name == "ilp" || s.Name == "milp" {
			continue // take seconds, or a build with a solver
		}
		c, p := pipelinetest.Chain(rng, 8, true), pipelinetest.Platform(rng, 3).WithMemory(pipeline.NoLimit)
		plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p})
		if err != nil {
			t.Logf("%s: %v", s.Name, err)
			continue
		}
		order, err := pipeline.Order(c, p, plan)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		spans, err := pipeline.Planned(c, p, plan, 1)
		if err != nil {
			t.Fatal(err)
		}
		begin, of := map[int]float64{}, map[int]pipeline.Span{}
		for _, x := range spans {
			of[x.Task] = x
		}
		seen, eps := 0, 1e-9*max(plan.Period, plan.Predicted.Makespan)
		for _, q := range order {
			last := -eps
			for _, w := range q.Work {
				if _, twice := begin[w.Task]; twice {
					t.Errorf("%s: task %d is twice in the order", s.Name, w.Task)
				}
				// The span is of the minibatch whose number is the residue.
				begin[w.Task] = of[w.Task].Start - float64(of[w.Task].Minibatch-w.Shift)/float64(plan.Repeats())*plan.Period
				if len(q.Work) > 1 && w.Task < len(plan.Tasks) && (w.Shift-plan.Tasks[w.Task].Shift)%plan.Repeats() != 0 {
					t.Errorf("%s: task %d, %v, has shift %d in the order", s.Name, w.Task, plan.Tasks[w.Task], w.Shift)
				}
				seen++
			}
			first := begin[q.Work[0].Task]
			for _, w := range q.Work {
				at := begin[w.Task] - first
				if at < last-eps {
					t.Errorf("%s: task %d starts before the one before it in the order", s.Name, w.Task)
				}
				last = at
			}
			if plan.Period > 0 && last > plan.Period+eps {
				t.Errorf("%s: the order of a period takes %v s, the period is %v s", s.Name, last, plan.Period)
			}
		}
		if want := len(plan.Tasks) + len(plan.Synchronization); seen != want || !slices.IsSortedFunc(order, func(a, b pipeline.Queue) int { return 1000*(a.From-b.From) + a.To - b.To }) {
			t.Errorf("%s: %d of %d tasks in the order", s.Name, seen, want)
		}
		ordered++
	}
	if ordered < 20 {
		t.Errorf("only %d plans", ordered)
	}
}
