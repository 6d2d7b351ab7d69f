package pofo

import (
	"errors"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// The least memory is what its sequence needs, and no strategy needs less; without offloads it is that of rotor-exact.
func TestLeastMemory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	exact := named(t, remat.Strategies(), "rotor-exact")
	below := 0
	for range 300 {
		c := plantest.Chain(rng, 1+rng.IntN(12))
		recompute, both, err := Smallest(c)
		if err != nil {
			t.Fatal(err)
		}
		if below += count(both < recompute); both > recompute {
			t.Errorf("%d bytes with offloads, %d without", both, recompute)
		}
		p := strategy.Problem{Chain: c, Memory: both, Link: schedule.Link{Bandwidth: 0.5 + 20*rng.Float64(), Duplex: rng.IntN(2) == 0}}
		seq, err := solveLeast(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := schedule.Simulate(c, seq, p.Limits()); err != nil || r.Peak != both {
			t.Errorf("%v: %v", seq, err)
		}
		k, err := newCosts(p)
		if err != nil {
			t.Fatal(err)
		}
		l := k.newLeast(t.Context())
		l.run(1, k.n)
		if r, err := schedule.Simulate(c, l.seq, schedule.Limits{Memory: recompute}); err != nil || r.Peak != recompute {
			t.Errorf("%v: %v", l.seq, err)
		}
		for s, smallest := range map[*strategy.Sequencer]int64{&exact: recompute, {Name: "pofo", Solve: solvePofo}: both} {
			var small *pipeline.InfeasibleError
			p.Memory = smallest - 1
			if _, err := s.Solve(t.Context(), p); !errors.As(err, &small) || small.Smallest != smallest {
				t.Errorf("%s below %d bytes: %v", s.Name, smallest, err)
			}
		}
	}
	if below < 100 {
		t.Errorf("offloads lower the least memory in %d cases alone", below)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
