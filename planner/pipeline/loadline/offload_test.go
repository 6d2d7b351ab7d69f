package loadline

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

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

// moves reports whether a stage has transfers.
func moves(st pipeline.Stage) bool {
	return slices.ContainsFunc(st.Ops, func(op schedule.Op) bool { return op.Kind.Transfer() })
}

// TestOffloadNeverWorse: a link to the host never makes a plan slower or impossible, often faster, and sometimes it alone makes
// one possible.
func TestOffloadNeverWorse(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 1))
	both, faster, alone, neither := 0, 0, 0, 0
	for range 1500 {
		r := hostRequest(rng, 6)
		mine, err := Contiguous(t.Context(), r)
		theirs, theirErr := Contiguous(t.Context(), without(r))
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
			} else if mine.Offloads() {
				t.Errorf("transfers for nothing: period %v", mine.Period)
			}
		}
		if theirErr == nil && theirs.Offloads() {
			t.Error("transfers without a link to the host")
		}
	}
	t.Logf("%d fit both, of which transfers make %d faster; %d with transfers alone; %d neither", both, faster, alone, neither)
	if both < 800 || faster < 80 || alone < 2 || neither < 100 {
		t.Errorf("%d both, %d faster, %d alone, %d neither", both, faster, alone, neither)
	}
}
