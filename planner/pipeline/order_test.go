package pipeline_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// TestOrder: for all strategies, every task and every message is once in the order of the device that issues it. Periods follow each other
// in that order, and the planned times follow the order of devices and of links.
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
		order, err := pipeline.Order(c, p, plan, 0)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		spans, err := pipeline.Planned(c, p, plan, 1)
		if err != nil {
			t.Fatal(err)
		}
		of := map[int]pipeline.Span{}
		for _, x := range spans {
			of[x.Task] = x
		}
		seen, eps := map[int]bool{}, 1e-9*max(plan.Period, plan.Predicted.Makespan)
		queues := map[[2]int][]pipeline.Work{} // by device, or the two ends of a link
		for d, list := range order.Devices {
			for _, w := range list {
				if w.Task < 0 || w.Kind == pipeline.Admitting || w.Kind == pipeline.Owning {
					continue
				}
				if seen[w.Task] {
					t.Errorf("%s: task %d is twice in the order", s.Name, w.Task)
				}
				if w.Task < len(plan.Tasks) && (w.Shift-plan.Tasks[w.Task].Shift)%plan.Repeats() != 0 {
					t.Errorf("%s: task %d, %v, has shift %d in the order", s.Name, w.Task, plan.Tasks[w.Task], w.Shift)
				}
				ends := [2]int{d, d}
				if w.To != pipeline.NoDevice {
					ends[1] = w.To
				}
				seen[w.Task], queues[ends] = true, append(queues[ends], w)
			}
		}
		if want := len(plan.Tasks) + len(plan.Synchronization); len(seen) != want {
			t.Errorf("%s: %d of %d tasks in the order", s.Name, len(seen), want)
		}
		for ends, queue := range queues {
			slices.SortStableFunc(queue, func(a, b pipeline.Work) int { return a.Place.Compare(b.Place) })
			// begin returns when work starts in the period; the span is of the minibatch whose number is the residue.
			begin := func(w pipeline.Work) float64 {
				return of[w.Task].Start - float64(of[w.Task].Minibatch-w.Shift)/float64(plan.Repeats())*plan.Period
			}
			last := begin(queue[0])
			for _, w := range queue {
				if begin(w) < last-eps {
					t.Errorf("%s: %v: task %d starts before the one before it in the order", s.Name, ends, w.Task)
				}
				last = begin(w)
			}
			if plan.Period > 0 && last-begin(queue[0]) > plan.Period+eps {
				t.Errorf("%s: %v: the order of a period takes %v s, the period is %v s", s.Name, ends, last-begin(queue[0]), plan.Period)
			}
		}
		ordered++
	}
	if ordered < 20 {
		t.Errorf("only %d plans", ordered)
	}
}

// TestMost: an interval that is longer than a period holds several times, and an end counts before a start at the same moment.
func TestMost(t *testing.T) {
	t.Parallel()
	c, p := pipelinetest.Chain(rand.New(rand.NewPCG(29, 2)), 4, true), pipelinetest.Platform(rand.New(rand.NewPCG(29, 2)), 2).WithMemory(pipeline.NoLimit)
	s, err := planner.LookupPipeline("1f1b*")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p})
	if err != nil {
		t.Fatal(err)
	}
	order, err := pipeline.Order(c, p, plan, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := order.Moments
	for _, x := range []struct {
		list []pipeline.Interval
		want int
	}{
		{nil, 0},
		{[]pipeline.Interval{{From: 1, To: 1}}, 1},
		{[]pipeline.Interval{{From: 0, To: n}}, 1},
		{[]pipeline.Interval{{From: 0, To: n + 1}}, 2},
		{[]pipeline.Interval{{From: 0, To: 1}, {From: 1, To: 2}}, 1},
		{[]pipeline.Interval{{From: 0, To: 2}, {From: 1 - n, To: 2 - n}}, 2},
	} {
		if got := order.Most(x.list); got != x.want {
			t.Errorf("%v: %d at once, want %d; a period has %d moments", x.list, got, x.want, n)
		}
	}
}
