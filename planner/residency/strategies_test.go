package residency

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
)

// trial is a request of up to 7 layers and 4 microbatches, with layers that are frozen, tied, or without host updates.
func trial(random *rand.Rand) Request {
	r := smallCase(random, 5)
	r.Microbatches = 1 + random.IntN(4)
	n := r.Chain.Len()
	for range random.IntN(3) {
		r.Chain.Layers = append(r.Chain.Layers, r.Chain.Layers[random.IntN(n)])
	}
	for l := range r.Chain.Layers {
		x := &r.Chain.Layers[l]
		if x.WeightBytes == 0 && random.IntN(2) == 0 {
			x.WeightBytes = int64(1 + random.IntN(6))
			x.Update.StateBytes = 2 * x.WeightBytes
		}
		if x.WeightBytes > 0 && random.IntN(6) == 0 {
			frozen := int64(0)
			x.Update = chain.Update{GradientBytes: &frozen}
		}
	}
	tie(random, r.Chain)
	r.Limits.Memory *= int64(1 + random.IntN(3))
	return r
}

// tie lets the last layer read the weights of the first, in some chains.
func tie(random *rand.Rand, c *chain.Chain) {
	first, last := &c.Layers[0], &c.Layers[c.Len()-1]
	if first.WeightBytes == 0 || random.IntN(3) > 0 {
		return
	}
	last.WeightBytes = first.WeightBytes
	last.Update = chain.Update{WeightsOf: 1}
}

// Auto is never slower than a named strategy, nor below the bound. Every plan is legal, within the limit, and in order too. The same
// request has the same plan.
func TestAutoIsNeverSlowerThanANamedStrategy(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	plans := map[string]int{}
	trials := 40
	if testing.Short() {
		trials = 20
	}
	for i := range trials {
		r := trial(random)
		r.Evaluations = 300
		best := solveTrial(t, r)
		if best == nil {
			continue
		}
		plans[Auto]++
		wantBound(t, best.Sequence.String(), r, best.Result.Period)
		if i%8 == 0 {
			if again := solveTrial(t, r); !slices.Equal(again.Sequence, best.Sequence) {
				t.Errorf("two plans of one request: %v; %v", best.Sequence, again.Sequence)
			}
		}
		for _, s := range named() {
			r.Strategy = s.Name
			plan := solveTrial(t, r)
			if plan == nil {
				continue
			}
			plans[s.Name]++
			if plan.Result.Period < best.Result.Period*(1-1e-9) {
				t.Errorf("%s takes %g s, auto %g s: %v; %v",
					s.Name, plan.Result.Period, best.Result.Period, plan.Sequence, best.Sequence)
			}
		}
	}
	t.Log(plans)
	for _, s := range named() {
		if plans[s.Name] < 3 {
			t.Errorf("%s has %d plans", s.Name, plans[s.Name])
		}
	}
}

// solveTrial solves a request and judges the plan afresh; nil: none was found.
func solveTrial(t *testing.T, r Request) *Plan {
	t.Helper()
	plan, err := Solve(context.Background(), r)
	if err != nil {
		small, is := errors.AsType[*InfeasibleError](err)
		if !is || small.Smallest <= r.Limits.Memory {
			t.Errorf("%s: %v", r.Strategy, err)
		}
		return nil
	}
	result, err := cycle.Simulate(r.Chain, plan.Sequence, r.Link, r.Limits)
	if err != nil || result.InOrderPeak > r.Limits.Memory || result.Period != plan.Result.Period {
		t.Errorf("%s: %v: %v, %+v", r.Strategy, plan.Sequence, err, result)
	}
	return plan
}

// The smallest limit that a refusal names works.
func TestTheSmallestLimitThatWasFoundWorks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	refused, refusedTrials := 0, 30
	if testing.Short() {
		refusedTrials = 8
	}
	for range refusedTrials {
		r := trial(random)
		r.Evaluations = 300
		r.Limits.Memory = 1
		_, err := Solve(context.Background(), r)
		small, is := errors.AsType[*InfeasibleError](err)
		if !is {
			t.Errorf("a limit of 1 B: %v", err)
			continue
		}
		refused++
		r.Limits.Memory = small.Smallest
		if _, err := Solve(context.Background(), r); err != nil {
			t.Errorf("%v; with that: %v", small, err)
		}
	}
	if refused != refusedTrials {
		t.Errorf("%d refused", refused)
	}
}

func TestRefusalsHaveTheNumbers(t *testing.T) {
	t.Parallel()
	host := 1.0
	c := &chain.Chain{Name: "two", InputBytes: 1}
	for _, name := range []string{"dense", "loss"} {
		c.Layers = append(c.Layers, chain.Layer{Name: name, ForwardS: 1, BackwardS: 2, OutputBytes: 4, SavedBytes: 4, GradientBytes: 4,
			WeightBytes: 10, Update: chain.Update{StateBytes: 20, HostS: &host}})
	}
	link := cycle.Link{ToDevice: 10, ToHost: 10, Duplex: true}
	for _, k := range []struct {
		name, want string
		r          Request
	}{
		{"device", "auto: a limit of 20 B is too small: the smallest found is 32 B, needed by B2 (loss)",
			Request{Chain: c, Link: link, Limits: cycle.Limits{Memory: 20, Host: cycle.NoLimit}}},
		{"no link", "auto: a limit of 60 B is too small: the smallest found is 83 B, needed by B2 (loss)",
			Request{Chain: c, Limits: cycle.Limits{Memory: 60, Host: cycle.NoLimit}}},
		{"host", "auto: 5 B of host memory are too little: the least found is 40 B",
			Request{Chain: c, Link: link, Limits: cycle.Limits{Memory: 60, Host: 5}}},
		{"strategy", `unknown strategy "best": the strategies for weights and state are resident, zero-offload, layer-window, ` +
			"protrain, greedysnake, weight-offload, auto",
			Request{Chain: c, Link: link, Strategy: "best"}},
	} {
		if _, err := Solve(context.Background(), k.r); err == nil || err.Error() != k.want {
			t.Errorf("%s: %v, want %s", k.name, err, k.want)
		}
	}
}

// The least host memory that a refusal names works.
func TestTheLeastHostMemoryThatWasFoundWorks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8, 9))
	refused := 0
	for range 12 {
		r := trial(random)
		r.Evaluations = 300
		if _, err := Solve(context.Background(), r); err != nil {
			continue
		}
		r.Limits.Host = 0
		_, err := Solve(context.Background(), r)
		small, is := errors.AsType[*HostError](err)
		if !is {
			continue // nothing moves, or nothing need move
		}
		refused++
		r.Limits.Host = small.Smallest
		if _, err := Solve(context.Background(), r); err != nil {
			t.Errorf("%v; with that: %v", small, err)
		}
	}
	if refused < 5 {
		t.Errorf("%d refused", refused)
	}
}

// A chain without weights is planned by recomputation and offloading alone; one that takes no time has no steady state.
func TestChainsWithoutWeights(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "plain", InputBytes: 1}
	for range 4 {
		c.Layers = append(c.Layers, chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 2, SavedBytes: 6, GradientBytes: 2})
	}
	r := Request{Chain: c, Limits: cycle.Limits{Memory: 24, Host: cycle.NoLimit}, Microbatches: 2}
	plan, err := Solve(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Result.InOrderPeak > 24 || plan.Result.Period <= 24 {
		t.Errorf("%v: %+v", plan.Sequence, plan.Result)
	}
	wantBound(t, "plain", r, plan.Result.Period)
	for l := range c.Layers {
		c.Layers[l].ForwardS, c.Layers[l].BackwardS = 0, 0
	}
	if _, err := Solve(context.Background(), r); !errors.Is(err, cycle.ErrNoSteadyState) {
		t.Errorf("%v", err)
	}
}

// A search that is canceled ends with the context's error.
func TestCanceledSearch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := trial(rand.New(rand.NewPCG(1, 1)))
	if _, err := Solve(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// The option of a plan bounds the search. Only this test finds an option that is passed over.
func TestTrialsBoundTheSearch(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 9))
	timed := func(r Request) int {
		p, err := newProblem(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		s := newSearch(p)
		if err := s.search(); err != nil {
			t.Fatal(err)
		}
		return s.evaluated
	}
	long := 0
	for range 6 {
		r := trial(random)
		all := timed(r)
		on := pipeline.NewPlatform(1, r.Limits.Memory, pipeline.Free())
		r.Evaluations = requestOf(pipeline.Request{Chain: r.Chain, Platform: on, Options: pipeline.Options{Trials: 100}}).Evaluations
		few := timed(r)
		if all > 1000 && few > all/2 {
			t.Errorf("%d plans with 100 trials, %d without", few, all)
		}
		if all > 1000 {
			long++
		}
	}
	if long == 0 {
		t.Error("no search is long")
	}
}
