package flush

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// request returns a random request that every schedule could serve: an even number of devices, microbatches that are a
// multiple of it, at least two layers for each device.
func request(rnd *rand.Rand) pipeline.Request {
	devices := 2 * (1 + rnd.IntN(2))
	chunks := 1 + rnd.IntN(3)
	q := pipeline.Request{
		Chain:    pipelinetest.Chain(rnd, devices*max(chunks, 2)+rnd.IntN(4), rnd.IntN(2) == 0),
		Platform: pipelinetest.Platform(rnd, devices),
	}
	q.Microbatches = devices * (2 + rnd.IntN(2))
	q.Chunks = chunks
	if rnd.IntN(3) == 0 {
		q.Accounting = pipeline.Saved
	}
	if rnd.IntN(3) == 0 {
		q.WeightCopies = []float64{float64(rnd.IntN(8)) / 2}
	}
	return q
}

// divided gives the request random stages for a schedule, some with the devices of a random numbering.
func divided(rnd *rand.Rand, r recipe, q pipeline.Request) pipeline.Request {
	p, n := q.Platform.Devices, q.Chain.Len()
	chunks := r.chunks
	if chunks == 0 {
		chunks = q.Chunks
	}
	ends := rnd.Perm(n - 1)[:p*chunks-1]
	slices.Sort(ends)
	ranks, first := rnd.Perm(p), 1
	q.Stages = nil
	for s, end := range append(ends, n-1) {
		st := pipeline.Stage{First: first, Last: end + 1}
		if p > 2 || rnd.IntN(2) == 0 {
			for _, rank := range r.shape(s, p) {
				st.Devices = append(st.Devices, ranks[rank])
			}
		}
		q.Stages = append(q.Stages, st)
		first = end + 2
	}
	return q
}

// Both checkers accept every plan of every schedule, with the same figures. The simulator runs the order of a plan without its times, and
// needs the same time. No plan is shorter than the work of the busiest device, or than the path of one microbatch through all stages.
func TestPlansPassBothCheckers(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 1))
	var cases []pipelinetest.Case
	rounds := 8
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		for _, r := range recipes() {
			q := request(rnd)
			if i%2 == 0 {
				q = divided(rnd, r, q)
			}
			plan, err := r.solve(t.Context(), q)
			if err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			bounds(t, q, plan, r)
			run, err := pipeline.Simulate(q.Chain, q.Platform, plan, pipeline.Noise{})
			if err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			if !near(run.Makespan, plan.Predicted.Makespan) {
				t.Errorf("%s: simulated %g, planned %g", r.name, run.Makespan, plan.Predicted.Makespan)
			}
			cases = append(cases, pipelinetest.Case{Chain: q.Chain, Platform: q.Platform, Plan: plan})
		}
	}
	if len(cases) != rounds*len(recipes()) {
		t.Errorf("%d plans", len(cases))
	}
	pipelinetest.Accept(t, cases)
}

func bounds(t *testing.T, q pipeline.Request, plan *pipeline.Plan, r recipe) {
	t.Helper()
	costs := pipeline.NewCosts(q.Chain)
	way, load := 0.0, map[int]float64{}
	for s, st := range plan.Stages {
		way += costs.U(st.First, st.Last)
		if r.split {
			way -= costs.BackwardWeight(st.First, st.Last)
		}
		for _, task := range plan.Tasks {
			if task.Stage == s && task.Kind == pipeline.F {
				load[task.Device] += costs.U(st.First, st.Last)
			}
		}
	}
	for _, l := range load {
		way = max(way, l)
	}
	if plan.Predicted.Makespan < way*(1-1e-9) {
		t.Errorf("%s: makespan %g, below the bound %g", r.name, plan.Predicted.Makespan, way)
	}
}

// A device never holds more activations than the schedule says, whatever the costs and links.
func TestActivationsOfAnyCosts(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 2))
	compared := 0
	for range 60 {
		for _, r := range recipes() {
			q := request(rnd)
			p, err := r.place(q)
			if err != nil {
				t.Fatal(err)
			}
			got := r.schedule(p)
			equal := must(r.name, unit(p.costs(r.split).stages, p.micros, r.split), r.order(p.counts), mostOf(r, p.devices))
			for d := range got.order {
				if r.most != nil && peak(got.order[d], true) > r.most(p.devices) || r.most == nil && !slices.Equal(got.order[d], equal.order[d]) {
					t.Fatalf("%s: device %d runs %v", r.name, d, got.order[d])
				}
				compared++
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d devices", compared)
	}
}

// Idle devices that may run ahead do it as equal costs or as those at hand say, whichever ends first; both happen.
func TestTheBetterOfTwo(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 6))
	wins := [2]int{}
	for range 60 {
		for _, r := range recipes() {
			if r.most == nil {
				continue
			}
			p, err := r.place(request(rnd))
			if err != nil {
				t.Fatal(err)
			}
			c, o, most := p.costs(r.split), r.order(p.counts), r.most(p.devices)
			published := must(r.name, unit(c.stages, c.micros, r.split), o, most)
			a, b := must(r.name, c, published.order, 0).makespan, must(r.name, c, o, most).makespan
			if got := r.schedule(p).makespan; got != min(a, b) {
				t.Fatalf("%s: %g, the two are %g and %g", r.name, got, a, b)
			}
			if a < b {
				wins[0]++
			} else if b < a {
				wins[1]++
			}
		}
	}
	if min(wins[0], wins[1]) < 20 {
		t.Errorf("wins %v", wins)
	}
}

func mostOf(r recipe, devices int) int {
	if r.most == nil {
		return 0
	}
	return r.most(devices)
}

func peak(ops []op, split bool) int {
	live, top := 0, 0
	for _, o := range ops {
		switch {
		case o.kind == pipeline.F:
			live++
		case o.kind == pipeline.W || o.kind == pipeline.B && !split:
			live--
		}
		top = max(top, live)
	}
	return top
}

// A refusal for memory names the smallest memory: there the plan exists, a byte below it does not.
func TestSmallestMemory(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 3))
	refused := 0
	for range 8 {
		for _, r := range recipes() {
			q := request(rnd)
			roomy := q.Platform
			q.Platform = roomy.WithMemory(0)
			_, err := r.solve(t.Context(), q)
			e, ok := errors.AsType[*pipeline.InfeasibleError](err)
			if !ok || e.Best == nil {
				if _, err := r.solve(t.Context(), q); err == nil {
					continue // nothing needs memory
				}
				t.Fatalf("%s: %v", r.name, err)
			}
			refused++
			q.Platform = roomy.WithMemory(e.Smallest)
			if _, err := r.solve(t.Context(), q); err != nil {
				t.Errorf("%s at its smallest memory: %v", r.name, err)
			}
			if e.Found {
				continue // a smaller one may do
			}
			q.Platform = roomy.WithMemory(e.Smallest - 1)
			if _, err := r.solve(t.Context(), q); !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("%s a byte below its smallest memory: %v", r.name, err)
			}
		}
	}
	if refused < 50 {
		t.Errorf("only %d refusals", refused)
	}
}

// The same request gives the same plan.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 4))
	for _, s := range Strategies() {
		q := request(rnd)
		var texts [2]string
		for i := range texts {
			plan, err := s.Solve(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			text, err := plan.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		if texts[0] != texts[1] {
			t.Errorf("%s: two plans for one request", s.Name)
		}
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range Strategies() {
		if s.Name == "" || s.Summary == "" || s.Paper == "" || s.Section == "" || seen[s.Name] || (s.Type == pipeline.Flushing) != (len(seen) < len(recipes())+2) {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
	}
	for _, name := range []string{"gpipe", "1f1b-flush", "interleaved", "chimera", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v", "looped-bfs", "gpipe-checkpoint", "1f1b-recompute", "ampnet", "pipemare"} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Strategies()[0].Solve(ctx, pipeline.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// FuzzSolve: any request gives a plan that the checker accepts, or an error that is none of ours.
func FuzzSolve(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(2), uint8(4), uint8(2), false, int64(1<<40))
	f.Add(uint64(2), uint8(9), uint8(4), uint8(8), uint8(1), true, int64(100))
	f.Add(uint64(3), uint8(1), uint8(1), uint8(0), uint8(0), false, int64(0))
	f.Fuzz(func(t *testing.T, seed uint64, layers, devices, micros, chunks uint8, wild bool, memory int64) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		q := pipeline.Request{
			Chain:    pipelinetest.Chain(rnd, 1+int(layers)%24, wild),
			Platform: pipelinetest.Platform(rnd, 1+int(devices)%6).WithMemory(memory),
		}
		q.Microbatches, q.Chunks = int(micros)%12, int(chunks)%4
		for _, r := range recipes() {
			if wild && q.Chain.Len() >= q.Platform.Devices*max(r.chunks, q.Chunks, 1) && q.Chunks > 0 {
				q = divided(rnd, r, q)
				spoil(rnd, q.Chain, q.Stages)
			}
			solveAny(t, r.strategy(), q)
		}
		if q.Stages != nil {
			q = divided(rnd, gpipe(), q)
			spoil(rnd, q.Chain, q.Stages)
		}
		solveAny(t, checkpointing(), q)
		if solveAny(t, recompute1F1B(), q); q.Stages == nil {
			for range q.Platform.Devices {
				q.WeightCopies = append(q.WeightCopies, float64(rnd.IntN(8))/2)
				q.Platform.Memory[rnd.IntN(q.Platform.Devices)] = rnd.Int64N(200)
			}
			solveAny(t, recompute1F1B(), q)
			q.WeightCopies = nil
		}
		q.Active = int(micros) % 5
		for _, a := range streams() {
			solveAny(t, a.strategy(), q)
		}
	})
}

// spoil makes a request that may be wrong.
func spoil(rnd *rand.Rand, c *chain.Chain, stages []pipeline.Stage) {
	st := &stages[rnd.IntN(len(stages))]
	switch rnd.IntN(8) {
	case 0:
		st.Last += rnd.IntN(3) - 1
	case 1:
		st.Devices = []int{rnd.IntN(8) - 1}
	case 2:
		st.Devices = nil
	case 3:
		c.Layers[rnd.IntN(c.Len())].BackwardWeightS = nil
	case 4:
		c.Layers[rnd.IntN(c.Len())].ForwardS = []float64{-1, 1e308, 1e-308, 1e30}[rnd.IntN(4)]
	}
}

func solveAny(t *testing.T, s pipeline.Strategy, q pipeline.Request) {
	t.Helper()
	plan, err := s.Solve(context.Background(), q)
	if err == nil {
		if _, err := pipeline.Check(q.Chain, q.Platform, plan); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		return
	}
	for _, known := range []error{ErrOptions, ErrHalves, pipeline.ErrInfeasible, pipeline.ErrPlatform, chain.ErrFormat} {
		if errors.Is(err, known) {
			return
		}
	}
	t.Fatalf("%s: %v", s.Name, err)
}
