package periodic

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// request returns a random request: chain, platform, versions, stages.
func request(rng *rand.Rand, replicas, shared bool) pipeline.Request {
	n := 1 + rng.IntN(6)
	r := pipeline.Request{Chain: pipelinetest.Chain(rng, n, rng.IntN(2) == 0), Platform: pipelinetest.Platform(rng, 1+rng.IntN(5))}
	r.Versions = []pipeline.Versions{"", pipeline.Latest, pipeline.Stash, pipeline.DoubleBuffered, pipeline.VerticalSync}[rng.IntN(5)]
	if r.Versions == pipeline.VerticalSync {
		r.WeightCopies = []float64{2.5}
	}
	r.Accounting = []pipeline.Accounting{"", pipeline.Saved}[rng.IntN(2)]
	free := rng.Perm(r.Platform.Devices)
	for at := 1; at <= n; {
		left := len(free)
		take := 1
		if replicas && left > 1 {
			take += rng.IntN(min(3, left))
		}
		last := min(n, at+rng.IntN(3))
		if left-take < 1 {
			last = n
		}
		devices := slices.Clone(free[:take])
		if shared {
			last, devices = min(n, at+rng.IntN(2)), []int{rng.IntN(r.Platform.Devices)}
		} else {
			free = free[take:]
		}
		r.Stages = append(r.Stages, pipeline.Stage{First: at, Last: last, Devices: devices})
		at = last + 1
	}
	return r
}

// limited gives a request a random memory between too little and enough.
func limited(rng *rand.Rand, r pipeline.Request) pipeline.Request {
	if rng.IntN(3) > 0 {
		r.Platform = r.Platform.WithMemory(rng.Int64N(90))
	}
	return r
}

// explore runs a strategy on random requests. Every plan passes both checkers. Every refusal names the smallest memory that works: the
// strategy plans within it, and refuses one byte less.
func explore(t *testing.T, name string, seed uint64, count int, replicas, shared bool, tune func(*rand.Rand, *pipeline.Request)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	var cases []pipelinetest.Case
	refused := 0
	for range count {
		r := limited(rng, request(rng, replicas, shared))
		tune(rng, &r)
		plan, err := solve(name, r)
		var small *pipeline.InfeasibleError
		switch {
		case errors.As(err, &small):
			refused++
			if plan = refusal(t, name, r, small); plan == nil {
				continue
			}
			r.Platform = plan.Platform
		case errors.Is(err, ErrNoPattern):
			continue
		case err != nil:
			t.Fatalf("%s: %v of %+v on %+v", name, err, r.Chain, r.Platform)
		}
		cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
	}
	if len(cases) < count*9/10 || refused < count/10 || refused > count*9/10 {
		t.Fatalf("%s: %d plans of %d, %d refused", name, len(cases), count, refused)
	}
	pipelinetest.Accept(t, cases)
}

// refusal tries the memory that a refusal names, and one byte less. It returns the plan at that memory.
func refusal(t *testing.T, name string, r pipeline.Request, e *pipeline.InfeasibleError) *pipeline.Plan {
	t.Helper()
	at := r
	at.Platform = r.Platform.WithMemory(e.Smallest)
	plan, err := solve(name, at)
	if err != nil {
		t.Errorf("%s: refused with %v, and at that memory: %v", name, e, err)
		return nil
	}
	if e.Smallest == 0 {
		t.Errorf("%s: refused with nothing to wish for: %v", name, e)
		return plan
	}
	at.Platform = r.Platform.WithMemory(e.Smallest - 1)
	if _, err := solve(name, at); !errors.Is(err, pipeline.ErrInfeasible) {
		t.Errorf("%s: refused with %v, but with one byte less: %v", name, e, err)
	}
	return plan
}

func TestPlansOfAllStrategies(t *testing.T) {
	t.Parallel()
	count := 400
	if testing.Short() {
		count = 80
	}
	none := func(*rand.Rand, *pipeline.Request) {}
	active := func(rng *rand.Rand, r *pipeline.Request) { r.Active = rng.IntN(6) }
	periods := func(rng *rand.Rand, r *pipeline.Request) { r.PerPeriod = rng.IntN(4) }
	t.Run("1f1b*", func(t *testing.T) { explore(t, "1f1b*", 1, count, true, false, none) })
	t.Run("1f1b", func(t *testing.T) { explore(t, "1f1b", 2, count, true, false, active) })
	t.Run("k-periodic", func(t *testing.T) { explore(t, "k-periodic", 3, count, false, false, periods) })
	t.Run("list", func(t *testing.T) { explore(t, "list", 4, count, false, true, none) })
	t.Run("eager", func(t *testing.T) { explore(t, "eager", 5, count, true, false, active) })
}

// With replicas, no period below the one found serves: a dense scan finds none.
func TestSmallestPeriodWithReplicas(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 8))
	bound := 0
	for range 800 {
		r := request(rng, true, false)
		r.Platform = r.Platform.WithMemory(10 + rng.Int64N(60))
		p, err := newProblem("test", r)
		if err != nil {
			t.Fatal(err)
		}
		if !p.fits(ones(len(p.stages))) {
			continue
		}
		q := newPipe(p)
		period := q.smallest(demand{}, p.fits)
		lowest := q.periods()[0]
		if period > lowest*(1+1e-9) {
			bound++
		}
		for i := range 3000 {
			x := lowest + (period-lowest)*float64(i)/3000
			if all, ok := q.passages(x, demand{}); ok && x < period*(1-1e-9) && p.fits(q.live(all, x)) {
				t.Fatalf("period %v, but %v serves too: %+v", period, x, q.v)
			}
		}
	}
	if bound < 20 {
		t.Fatalf("memory bound in %d cases", bound)
	}
}

// 1F1B keeps exactly as many minibatches live as it warms up with; equal stages then never wait (PipeDream, 3.2).
func TestOneFOneB(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "equal"}
	for range 5 {
		c.Layers = append(c.Layers, chain.Layer{Name: "layer", ForwardS: 1, BackwardS: 2})
	}
	q := pipeOf(t, c, 5)
	plan, err := solve("1f1b", q.problem.Request)
	if err != nil {
		t.Fatal(err)
	}
	report, err := pipeline.Check(c, q.problem.Platform, plan)
	if err != nil || plan.Period != 3 || !slices.Equal(report.NCA, []int{5, 4, 3, 2, 1}) || report.Bubble != 0 {
		t.Errorf("period %v, %+v, %v", plan.Period, report, err)
	}
}

// PipeDream's example of 1F1B-RR: a first stage of twice the load on two workers, a second one on one. NOAM is 2.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "figure 8", Layers: []chain.Layer{
		{Name: "1", ForwardS: 2, BackwardS: 4}, {Name: "2", ForwardS: 1, BackwardS: 2},
	}}
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(3, pipeline.NoLimit, pipeline.Free())}
	r.Stages = []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0, 1}}, {First: 2, Last: 2, Devices: []int{2}}}
	for _, name := range []string{"1f1b", "1f1b*", "eager"} {
		plan, err := solve(name, r)
		if err != nil {
			t.Fatal(name, err)
		}
		report, err := pipeline.Check(c, r.Platform, plan)
		if err != nil || plan.SecondsPerMinibatch() != 3 || report.Bubble != 0 || !slices.Equal(report.NCA, []int{2, 1}) {
			t.Errorf("%s: %v a minibatch, %+v, %v", name, plan.SecondsPerMinibatch(), report, err)
		}
	}
}

// Eager runs: one minibatch at a time takes the whole time each; equal stages with NOAM = P never wait; no run is faster
// than the largest load.
func TestEager(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "equal"}
	for range 4 {
		c.Layers = append(c.Layers, chain.Layer{Name: "layer", ForwardS: 1, BackwardS: 2})
	}
	q := pipeOf(t, c, 4)
	for noam, want := range map[int]float64{1: 12, 2: 6, 4: 3, 9: 3} {
		r := q.problem.Request
		r.Active = noam
		run, err := Eager(context.Background(), r, 400)
		// The average of a run may begin and end in the middle of a pattern.
		if err != nil || math.Abs(run.Period-want) > 0.02*want || run.NCA[3] != 1 || run.NCA[0] > noam {
			t.Errorf("NOAM %d: %+v, %v; want a period of %v", noam, run, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	good := request(rng, false, false)
	for len(good.Stages) < 2 {
		good = request(rng, false, false)
	}
	good.Platform = pipeline.NewPlatform(4, pipeline.NoLimit, 1)
	for s := range good.Stages {
		good.Stages[s].Devices = []int{s % 4}
	}
	for _, c := range []struct {
		what string
		mar  func(r *pipeline.Request)
		want error
	}{
		{"gap", func(r *pipeline.Request) { r.Stages[0].Last++ }, ErrStages},
		{"short", func(r *pipeline.Request) { r.Stages = r.Stages[:1] }, ErrStages},
		{"device", func(r *pipeline.Request) { r.Stages[0].Devices = []int{4} }, ErrStages},
		{"twice", func(r *pipeline.Request) { r.Stages[0].Devices = []int{1, 1} }, ErrStages},
		{"nobody", func(r *pipeline.Request) { r.Stages[1].Devices = nil }, ErrStages},
		{"shared", func(r *pipeline.Request) { r.Stages[1].Devices = r.Stages[0].Devices }, ErrStages},
		{"flush", func(r *pipeline.Request) { r.Versions = pipeline.Flush }, ErrOptions},
		{"copies", func(r *pipeline.Request) { r.Versions, r.WeightCopies = pipeline.VerticalSync, nil }, ErrOptions},
		{"many copies", func(r *pipeline.Request) { r.WeightCopies = make([]float64, 9) }, ErrOptions},
		{"platform", func(r *pipeline.Request) { r.Platform = &pipeline.Platform{} }, pipeline.ErrPlatform},
	} {
		r := good
		r.Stages = slices.Clone(good.Stages)
		c.mar(&r)
		if _, err := solve("1f1b*", r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range Strategies() {
		if _, err := s.Solve(ctx, good); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", s.Name, err)
		}
	}
}

// Without stages, a request gets those of equal load; nothing that takes no time stops a planner.
func TestDefaultsAndNothing(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "idle", Layers: []chain.Layer{{Name: "1"}, {Name: "2"}}}
	for _, s := range Strategies() {
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())}
		if plan, err := s.Solve(context.Background(), r); s.Name != "eager" && !errors.Is(err, milp.ErrNoSolver) && (err != nil || plan.Period != Instant) {
			t.Errorf("%s: %v, %v", s.Name, plan, err)
		}
	}
	c = &chain.Chain{Name: "3", Layers: []chain.Layer{{Name: "1", ForwardS: 2}, {Name: "2", ForwardS: 1}, {Name: "3", ForwardS: 1}}}
	plan, err := solve("1f1b*", pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())})
	if err != nil || plan.Period != 2 || plan.Stages[0].Last != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
}

func FuzzPlans(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(99))
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 3))
		replicas, shared := rng.IntN(2) == 0, rng.IntN(2) == 0
		r := limited(rng, request(rng, replicas, shared))
		r.Active, r.PerPeriod = rng.IntN(5), rng.IntN(4)
		for _, s := range Strategies() {
			plan, err := s.Solve(context.Background(), r)
			var small *pipeline.InfeasibleError
			switch {
			case errors.As(err, &small):
				refusal(t, s.Name, r, small)
			case errors.Is(err, ErrStages), errors.Is(err, ErrNoPattern), errors.Is(err, milp.ErrNoSolver):
			case err != nil:
				t.Errorf("%s: %v", s.Name, err)
			default:
				if _, err := pipeline.Check(r.Chain, r.Platform, plan); err != nil {
					t.Errorf("%s: %v", s.Name, err)
				}
			}
		}
	})
}

// Replicas keep rounds where that costs neither time nor memory: stages have the live minibatches that they have without. Those that keep
// them miss the updates of just the rounds in flight, all alike, as PipeDream's do, whose updates are synchronized; one stage on all
// devices misses none.
func TestReplicasKeepRounds(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 9))
	kept, not, fresher, staler := 0, 0, 0, 0
	for range 1500 {
		r := request(rng, true, false)
		r.Platform = r.Platform.WithMemory(pipeline.NoLimit)
		p, err := newProblem("test", r)
		if err != nil {
			t.Fatal(err)
		}
		q := newPipe(p)
		for _, d := range []demand{{}, {least: warmUps(p.stages, 0), most: warmUps(p.stages, 0)}} {
			period := q.smallest(d, func([]int) bool { return true })
			loose, _ := q.passages(period, d)
			before, after := judged(t, q, period, loose), judged(t, q, period, q.inRounds(period, d))
			if !slices.Equal(before.NCA, after.NCA) {
				t.Fatalf("%v: %v live minibatches, %v without rounds", p.stages, after.NCA, before.NCA)
			}
			for s, st := range p.stages {
				m := after.Missed[s]
				switch g := after.NCA[s] - 1; {
				case len(p.stages) == 1 && m != [2]int{}:
					t.Fatalf("data parallelism misses %v updates", m)
				case len(st.Devices) == 1 && m != [2]int{g, g}:
					t.Fatalf("%v: stage %d misses %v updates, with %d live minibatches", p.stages, s, m, g+1)
				case len(st.Devices) > 1 && m == [2]int{g, g}:
					kept++
				case len(st.Devices) > 1:
					not++
				}
				fresher, staler = fresher+max(0, before.Missed[s][1]-m[1]), staler+max(0, m[1]-before.Missed[s][1])
			}
		}
	}
	t.Logf("%d stages keep rounds, %d do not; %d updates fewer are missed, %d more", kept, not, fresher, staler)
	if kept < 3*not || fresher < 100 || staler*20 > fresher {
		t.Errorf("%d stages keep rounds, %d do not; %d updates fewer are missed, %d more", kept, not, fresher, staler)
	}
}

// judged is the report on a plan with some passages.
func judged(t *testing.T, q *pipe, period float64, all []passage) *pipeline.Report {
	t.Helper()
	report, err := pipeline.Check(q.problem.Chain, q.problem.Platform, q.plan(period, all, 0))
	if err != nil {
		t.Fatal(err)
	}
	return report
}
