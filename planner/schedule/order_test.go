package schedule

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
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

// A sequence that fits with its own times fits with all others where ops take memory in the planned order, and with its own times runs as
// planned. Only this test finds a prediction for other times that fails although the executor would run the plan.
func TestResimulateFitsWithAllTimes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, planned *Result) {
		limits.Memory = planned.Peak
		other := *c
		same, err := Resimulate(c, &other, seq, limits)
		if err != nil || !slices.Equal(same.Start, planned.Start) || !slices.Equal(same.End, planned.End) || same.Peak != planned.Peak {
			t.Fatalf("%s with its own times: %v, %v, planned %v", seq, err, same, planned)
		}
		r, err := Resimulate(c, retimed(rng, c), seq, limits)
		if err != nil || r.Peak > planned.Peak {
			t.Fatalf("%s with other times: %v, %v, planned %v", seq, err, r, planned)
		}
	})
}

// retimed returns a chain with random times of its ops.
func retimed(rng *rand.Rand, c *chain.Chain) *chain.Chain {
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for i := range out.Layers {
		l := &out.Layers[i]
		l.ForwardS, l.BackwardS = 10*rng.ExpFloat64(), 10*rng.ExpFloat64()
	}
	return &out
}

// TestResimulateKeepsAPrefetchBack has a sequence whose prefetch takes the memory of a later forward where ops take longer than planned.
func TestResimulateKeepsAPrefetchBack(t *testing.T) {
	t.Parallel()
	layer := func(forward, backward float64, output, saved, gradient, over, back int64) chain.Layer {
		return chain.Layer{ForwardS: forward, BackwardS: backward, OutputBytes: output, SavedBytes: saved, GradientBytes: gradient, ForwardOverheadBytes: over, BackwardOverheadBytes: back}
	}
	c := &chain.Chain{InputBytes: 3, Layers: []chain.Layer{layer(0, 1, 1, 1, 0, 4, 0), layer(4, 0, 0, 5, 3, 1, 2), layer(2, 0, 6, 8, 9, 3, 2)}}
	seq, err := Parse("Fck1 Fck2 O1 Fck3 O3 Fall2 P1 Fck2 Fall3 B3 B2 O1 P1 Fall1 B1")
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Memory: 23, Link: Link{Bandwidth: 0.25}}
	slow := *c
	slow.Layers = slices.Clone(c.Layers)
	for i := range slow.Layers {
		slow.Layers[i].ForwardS, slow.Layers[i].BackwardS = 20, 20
	}
	misfit := (*MemoryError)(nil)
	if _, err := Simulate(&slow, seq, limits); !errors.As(err, &misfit) {
		t.Errorf("with other times and no order: %v", err)
	}
	if r, err := Resimulate(c, &slow, seq, limits); err != nil || r.Peak > limits.Memory {
		t.Errorf("with other times in the planned order: %v, %v", err, r)
	}
}
