package flush

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// latency is how long a minibatch of a periodic plan is in the pipeline, from its first forward to its last backward.
func latency(q pipeline.Request, plan *pipeline.Plan) float64 {
	first, last := 0.0, 0.0
	for _, task := range plan.Tasks {
		at := task.Start - float64(task.Shift)*plan.Period
		switch {
		case task.Stage == 0 && task.Kind == pipeline.F:
			first = at
		case task.Stage == 0 && task.Kind == pipeline.B:
			st := plan.Stages[0]
			last = at + pipeline.NewCosts(q.Chain).Backward(st.First, st.Last)
		}
	}
	return last - first
}

// Both checkers accept every pattern. Its period is the load of the busiest device or link, or as long as the bound on the minibatches in
// flight asks. In the latter case the period is no longer than one minibatch after the other.
func TestAsynchronousPatterns(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(9, 1))
	var cases []pipelinetest.Case
	bounded := 0
	for i := range 120 {
		q := request(rnd)
		if i%2 == 0 {
			q = divided(rnd, recipe{chunks: 1, shape: loop}, q)
		}
		q.Microbatches, q.Active = 0, i%4
		a := streams()[i%2]
		plan, err := a.solve(context.Background(), q)
		if err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		busiest, way := loads(q, plan)
		if plan.Period < busiest*(1-1e-9) || q.Active == 0 && plan.Period > busiest*(1+1e-9) || plan.Period > max(way, busiest)*(1+1e-9) {
			t.Errorf("period %g, the busiest resource takes %g, a minibatch %g", plan.Period, busiest, way)
		}
		if q.Active > 0 && latency(q, plan) > float64(q.Active)*plan.Period*(1+1e-9) {
			t.Errorf("a minibatch stays for %g s of period %g with at most %d in flight", latency(q, plan), plan.Period, q.Active)
		}
		if q.Active > 0 && plan.Period > busiest*(1+1e-9) {
			bounded++
		}
		cases = append(cases, pipelinetest.Case{Chain: q.Chain, Platform: q.Platform, Plan: plan})
	}
	if bounded < 20 {
		t.Errorf("only %d periods made longer by the bound", bounded)
	}
	pipelinetest.Accept(t, cases)
}

// loads returns the load of the busiest device or link, and the time of one minibatch alone.
func loads(q pipeline.Request, plan *pipeline.Plan) (busiest, way float64) {
	costs := pipeline.NewCosts(q.Chain)
	for s, st := range plan.Stages {
		busiest = max(busiest, costs.U(st.First, st.Last))
		way += costs.U(st.First, st.Last)
		if s+1 == len(plan.Stages) {
			break
		}
		x, y := st.Devices[0], plan.Stages[s+1].Devices[0]
		there, back := q.Platform.Seconds(q.Chain.Activation(st.Last), x, y), q.Platform.Seconds(q.Chain.Gradient(st.Last), x, y)
		way += there + back
		if q.Platform.Duplex {
			busiest = max(busiest, there, back)
		} else {
			busiest = max(busiest, there+back)
		}
	}
	return busiest, way
}

// On equal stages without communication devices never wait; with one minibatch in flight only one works at a time. The
// correction of pipemare is in the plan and costs a copy of the weights.
func TestAsynchronousOfEqualStages(t *testing.T) {
	t.Parallel()
	for P := 1; P <= 6; P++ {
		c := uniform(P, 1, 1, 1)
		for i := range c.Layers {
			c.Layers[i].WeightBytes = 100
		}
		q := pipeline.Request{Chain: c, Platform: free(P)}
		plan, err := lookup(t, "ampnet").Solve(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		mare, err := lookup(t, "pipemare").Solve(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Active = 1
		alone, err := lookup(t, "ampnet").Solve(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Period != 3 || mare.Period != 3 || !near(alone.Period, 3*float64(P)) {
			t.Errorf("%d devices: periods %g, %g and, one by one, %g", P, plan.Period, mare.Period, alone.Period)
		}
		for d, peak := range mare.PerDevicePeak {
			if peak != plan.PerDevicePeak[d]+100 {
				t.Errorf("device %d: %d bytes, without the correction %d", d, peak, plan.PerDevicePeak[d])
			}
		}
	}
}

func TestBadAsynchronousRequests(t *testing.T) {
	t.Parallel()
	for says, edit := range map[string]func(q *pipeline.Request){
		"active is -1":                func(q *pipeline.Request) { q.Active = -1 },
		"weight versions are \"stash": func(q *pipeline.Request) { q.Versions = pipeline.Stash },
		"has enough for 2 devices":    func(q *pipeline.Request) { q.Platform = free(3) },
		"needs 4 B":                   func(q *pipeline.Request) { q.Platform = free(2).WithMemory(3) },
		"its period is 0 s":           func(q *pipeline.Request) { q.Chain = uniform(2, 0, 0, 0) },
		"a minibatch takes +Inf s": func(q *pipeline.Request) { // B_1 has to wait for a whole period
			q.Chain.Layers[0] = chain.Layer{Name: "long", ForwardS: 8e307, BackwardS: 9.5e307}
			q.Chain.Layers[1] = chain.Layer{Name: "short", ForwardS: 1e300, BackwardS: 1e300}
		},
		"a chain and a platform": func(q *pipeline.Request) { q.Chain = nil },
	} {
		q := pipeline.Request{Chain: uniform(2, 1, 1, 1), Platform: free(2)}
		edit(&q)
		for _, a := range streams() {
			_, err := a.solve(context.Background(), q)
			if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, ErrOptions) && !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("%s: %v, want %q", a.name, err, says)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := ampnet().solve(ctx, pipeline.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A backward of no duration touches the forward of the next minibatch: one minibatch is there, not two.
func TestAsynchronousTouch(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{1, 1e-308, 1e308} {
		q := pipeline.Request{Chain: uniform(1, f, 0, 0), Platform: free(1)}
		plan, err := ampnet().solve(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		report, err := pipeline.Check(q.Chain, q.Platform, plan)
		if err != nil || report.NCA[0] != 1 || plan.Period != f {
			t.Errorf("%g: %+v, %v", f, report, err)
		}
	}
}
