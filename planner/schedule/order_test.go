package schedule

import (
	"math/rand/v2"
	"testing"
)

// The order of a simulation holds every start and end once, by their times, and adding up what ops take and leave along
// it gives the peak.
func TestOrderTellsThePeak(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	checked := 0
	for range 600 {
		c := randomChain(rng)
		seq := randomSequence(rng, c, true)
		limits := randomLimits(rng, c, seq)
		s, err := NewSimulator(c)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(seq, limits)
		if err != nil {
			continue
		}
		started, ended, used, peak, now := make([]bool, len(seq)), make([]bool, len(seq)), c.InputBytes, c.InputBytes, 0.0
		var replayed replay
		if err := replayed.judge(c, seq); err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Order {
			var at float64
			if p >= 0 {
				if started[p] {
					t.Fatalf("op %d starts twice (%v)", p, seq)
				}
				started[p], at = true, r.Start[p]
				used += replayed.steps[p].takes
				peak = max(peak, used)
			} else {
				p = ^p
				if !started[p] || ended[p] {
					t.Fatalf("op %d ends twice, or before it starts (%v)", p, seq)
				}
				ended[p], at = true, r.End[p]
				used += replayed.steps[p].leaves - replayed.steps[p].takes
				for _, o := range replayed.steps[p].releases {
					if o == none {
						continue
					}
					if replayed.steps[o].holds--; replayed.steps[o].holds == 0 {
						used -= replayed.steps[o].bytes
					}
				}
			}
			if at < now {
				t.Fatalf("the order goes back from %v to %v (%v)", now, at, seq)
			}
			now = at
		}
		if len(r.Order) != 2*len(seq) || peak != r.Peak {
			t.Fatalf("%d starts and ends of %d ops; the peak along them is %d, simulated %d (%v)", len(r.Order), len(seq), peak, r.Peak, seq)
		}
		checked++
	}
	if checked < 150 {
		t.Errorf("only %d sequences were checked", checked)
	}
}
