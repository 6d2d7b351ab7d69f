package auto

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Within a tolerance, the chosen plan is slower than the fastest plan by no more than the tolerance. It transfers less, or is the fastest
// plan itself. It keeps the rules, and its description is true.
func TestWhatIsBelowTheToleranceIsNotWorthATransfer(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(21, 22))
	passed, none, fewer := 0, 0, 0
	for range 60 {
		c := plantest.Chain(rnd, 2+rnd.IntN(8))
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) * int64(6+rnd.IntN(4)) / 10, Link: schedule.Link{Bandwidth: 1 + 8*rnd.Float64(), Duplex: rnd.IntN(2) == 0}}
		told := ""
		p.Chosen = func(name string) { told = name }
		exact := (&judge{t: t}).plan(p)
		if exact == nil {
			continue
		}
		if told != exact.Made() || exact.Passed != nil {
			t.Fatalf("told %q of %+v", told, exact)
		}
		p.Tolerance = []float64{0.01, 0.1, 0.5}[rnd.IntN(3)]
		r, err := Plan(context.Background(), p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := schedule.Simulate(c, r.Sequence, schedule.Limits{Memory: p.Memory, Link: p.Link})
		if err != nil || got.Makespan != r.Makespan || got.Peak != r.Peak || swallows(r.Sequence) || told != r.Made() {
			t.Fatalf("%v: %+v beside %+v", err, r, got)
		}
		if r.Passed == nil {
			if !slices.Equal(r.Sequence, exact.Sequence) {
				t.Errorf("another sequence without a reason: %v, %v", r.Sequence, exact.Sequence)
			}
			continue
		}
		passed++
		if r.Makespan > exact.Makespan*(1+p.Tolerance) || r.Transfer > exact.Transfer || r.Passed.Makespan != exact.Makespan {
			t.Errorf("tolerance %v: %v with %v of transfers beside %v with %v", p.Tolerance, r.Makespan, r.Transfer, exact.Makespan, exact.Transfer)
		}
		if n := (&Candidate{Sequence: r.Sequence}).transfers(); n == 0 {
			none++
		} else if r.Transfer < exact.Transfer {
			fewer++
		}
		if why := r.Why(); !strings.Contains(why, "chose "+r.Winner+", with") || !strings.Contains(why, "(auto.tolerance=") || !strings.Contains(why, r.Passed.Strategy) {
			t.Errorf("why: %s", why)
		}
	}
	if passed < 25 || none < 5 || fewer < 5 {
		t.Errorf("%d plans were passed over, %d for one without transfers, %d for one with fewer", passed, none, fewer)
	}
}

// Where transfers take time from computation, no plan has a smaller expected time, contention included, than the chosen plan. Where
// transfers take more than they can save, the planner chooses a plan without any if one fits.
func TestContentionCounts(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(25, 26))
	other, without := 0, 0
	for range 40 {
		c := plantest.Chain(rnd, 2+rnd.IntN(7))
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) * int64(5+rnd.IntN(5)) / 10, Link: schedule.Link{Bandwidth: 1 + 8*rnd.Float64()}}
		p.Contention = []float64{0.1, 0.4, 100}[rnd.IntN(3)]
		r, err := Plan(context.Background(), p, Options{})
		if err != nil {
			continue
		}
		cost := func(makespan, transfer float64) float64 { return makespan + p.Contention*transfer }
		plain := false
		for _, x := range r.Candidates {
			plain = plain || x.Sequence != nil && x.Transfer == 0
			if x.Sequence != nil && cost(x.Makespan, x.Transfer) < cost(r.Makespan, r.Transfer)*(1-1e-9) {
				t.Errorf("contention %v: %s costs %v, the one that is chosen, of %s, %v", p.Contention, x.Strategy, cost(x.Makespan, x.Transfer), r.Winner, cost(r.Makespan, r.Transfer))
			}
		}
		if r.Passed != nil {
			other++
			if !strings.Contains(r.Why(), "of their own time") {
				t.Errorf("why: %s", r.Why())
			}
		}
		if p.Contention == 100 && plain {
			without++
			if r.Transfer > 0 {
				t.Errorf("transfers of %v s, which cost %v", r.Transfer, p.Contention*r.Transfer)
			}
		}
	}
	if other < 10 || without < 5 {
		t.Errorf("%d plans were passed over, %d could do without", other, without)
	}
}

// Twelve layers of which a single one needs to leave: the strategies that move all they can are thinned out.
func TestTransfersThatNothingNeedsAreLeftOut(t *testing.T) {
	t.Parallel()
	c := plantest.Chain(rand.New(rand.NewPCG(23, 24)), 12)
	p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) - 1, Link: schedule.Link{Bandwidth: 1e3}}
	p.Tolerance = DefaultTolerance
	r, err := Plan(context.Background(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := (&Candidate{Sequence: r.Sequence}).transfers(); n > 2 {
		t.Errorf("one byte less than store-all: %d transfers in %v", n, r.Sequence)
	}
}
