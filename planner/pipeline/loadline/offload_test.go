package loadline

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// hostRequest is a random request whose devices talk to their host.
func hostRequest(rng *rand.Rand, layers int) pipeline.Request {
	c := randomChain(rng, 1+rng.IntN(layers))
	p := randomPlatform(rng, c)
	p.Host = float64(1 + rng.IntN(30))
	p.Duplex = rng.IntN(2) == 0
	r := pipeline.Request{Chain: c, Platform: p}
	if rng.IntN(2) == 0 {
		r.Accounting = pipeline.Saved
	}
	if rng.IntN(3) == 0 {
		r.Versions = pipeline.Stash
	}
	return r
}

// without is the request without a link to the host.
func without(r pipeline.Request) pipeline.Request {
	p := *r.Platform
	p.Host = 0
	r.Platform = &p
	return r
}

// offloads reports whether a plan has transfers.
func offloads(plan *pipeline.Plan) bool {
	return slices.ContainsFunc(plan.Stages, moves)
}

// moves reports whether a stage has transfers.
func moves(st pipeline.Stage) bool {
	return slices.ContainsFunc(st.Ops, func(op schedule.Op) bool { return op.Kind.Transfer() })
}

// TestOffloadNeverWorse: a link to the host never makes a plan slower or impossible, often faster, and sometimes it alone makes
// one possible.
func TestOffloadNeverWorse(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 1))
	both, faster, alone, neither := 0, 0, 0, 0
	for range 1500 {
		r := hostRequest(rng, 6)
		mine, err := recomputing(t.Context(), r)
		theirs, theirErr := recomputing(t.Context(), without(r))
		switch {
		case err != nil && !errors.Is(err, pipeline.ErrInfeasible):
			t.Fatal(err)
		case err != nil && theirErr == nil:
			t.Fatalf("%v, without transfers there is a period of %v", err, theirs.Period)
		case err != nil:
			neither++
		case theirErr != nil:
			alone++
		case mine.Period > theirs.Period:
			t.Errorf("period %v, without transfers %v", mine.Period, theirs.Period)
		default:
			both++
			if mine.Period < theirs.Period*(1-1e-9) {
				faster++
			} else if offloads(mine) {
				t.Errorf("transfers for nothing: period %v", mine.Period)
			}
		}
		if theirErr == nil && offloads(theirs) {
			t.Error("transfers without a link to the host")
		}
	}
	t.Logf("%d fit both, of which transfers make %d faster; %d with transfers alone; %d neither", both, faster, alone, neither)
	if both < 800 || faster < 80 || alone < 2 || neither < 100 {
		t.Errorf("%d both, %d faster, %d alone, %d neither", both, faster, alone, neither)
	}
}

// byHand is two layers of 1 s each way in one stage, whose first saved set is offloaded at 10 bytes/s.
func byHand(t *testing.T) (*chain.Chain, pipeline.Stage) {
	t.Helper()
	ops, err := schedule.Parse("Fall1 O2 Fall2 P2 B2 B1")
	if err != nil {
		t.Fatal(err)
	}
	return &chain.Chain{Name: "hand", InputBytes: 4, Layers: []chain.Layer{
		{ForwardS: 1, BackwardS: 1, OutputBytes: 2, SavedBytes: 10, GradientBytes: 2},
		{ForwardS: 1, BackwardS: 1, OutputBytes: 2, SavedBytes: 6, GradientBytes: 2},
		{ForwardS: 1, BackwardS: 1},
	}}, pipeline.Stage{First: 1, Last: 2, Devices: []int{0}, Ops: ops}
}

// TestSwapsByHand: F runs from 0 to 2, the offload could from 1 to 2; B begins later, and the prefetch ends there. One minibatch
// holds 14, 20, 10 without ā_1, 24 while B2 runs, and 20 bytes.
func TestSwapsByHand(t *testing.T) {
	c, st := byHand(t)
	cost := mustMeasure(c, st)
	for _, x := range []struct {
		duplex                   bool
		bandwidth, period, later float64
		out, back                float64
		held                     int64
		rule                     pipeline.Rule
	}{
		{bandwidth: 10, period: 10, later: 5, out: 1, back: 4, held: 24},
		{bandwidth: 10, period: 10, later: 3, out: 1, back: 2, held: 24},                 // just in time
		{bandwidth: 10, period: 10, later: 2, rule: pipeline.RuleDependency},             // the prefetch from 1 to 2, the offload behind it
		{bandwidth: 10, period: 4, later: 6, out: 2, back: 5, held: 44},                  // another minibatch's prefetch is from 1 to 2
		{bandwidth: 10, period: 4, later: 6, out: 1, back: 5, held: 40, duplex: true},    // and does not matter
		{bandwidth: 5, period: 4, later: 6, out: 2, back: 4, held: 44},                   // busy all the time
		{bandwidth: 4, period: 4, later: 6, rule: pipeline.RuleResource},                 // 5 s in 4 s
		{bandwidth: 4, period: 4, later: 6, out: 1, back: 3.5, held: 44, duplex: true},   // the prefetch begins when the offload ends
		{bandwidth: 2.4, period: 4, later: 9, rule: pipeline.RuleResource, duplex: true}, // one transfer is longer than a period
	} {
		h, r := host{x.bandwidth, x.duplex}, rhythm{x.period, x.later}
		held, why := cost.held(h, r, 1)
		if x.rule != "" {
			if why == nil || why.rule != x.rule {
				t.Errorf("%+v: %+v", x, why)
			}
			continue
		}
		swaps, _ := cost.swaps(h, r, 1)
		if why != nil || held != x.held || swaps[0] != (swap{x.out, x.back}) {
			t.Errorf("%+v: %d bytes, %+v, %+v", x, held, swaps, why)
		}
	}
}

// TestSwapsInOrder: the prefetches are on the link from 0.5 to 1.8, so the first offload waits until then, and the second one behind
// it, though there would be room for it before.
func TestSwapsInOrder(t *testing.T) {
	cost := Cost{Forward: 2, Backward: 2, moves: []move{{bytes: 10, due: 1.5}, {bytes: 3, due: 1.8}}, fetches: []int{0, 1}}
	swaps, why := cost.swaps(host{bandwidth: 10}, rhythm{10, 20}, 2)
	if why != nil {
		t.Fatal(why)
	}
	for k, want := range []swap{{1.8, 20.5}, {2.8, 21.5}} {
		if got := swaps[k]; math.Abs(got.out-want.out)+math.Abs(got.back-want.back) > 1e-9 {
			t.Errorf("move %d: %+v, want %+v", k, got, want)
		}
	}
}
