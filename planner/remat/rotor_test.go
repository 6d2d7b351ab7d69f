package remat

import (
	"errors"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/strategy"
)

// However long the chain, the smallest limit is looked for in few tables; of short chains to the byte.
func TestFirstThat(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(21, 22))
	for range 2000 {
		low, allowed := rnd.Int64N(1<<40), rnd.IntN(60)
		first := low + 1 + rnd.Int64N(low/8+2)
		calls := 0
		high, exact := firstThat(low, DefaultSlots, allowed, func(m int64) bool { calls++; return m >= first })
		if high < first || exact && high != first || calls > max(allowed, fewestFills)+1 || high-first > low/8+2 {
			t.Fatalf("above %d in %d calls: %d (exact: %t) after %d, the first is %d", low, allowed, high, exact, calls, first)
		}
		if allowed == 59 && !exact {
			t.Fatalf("above %d: %d is not the first, %d", low, high, first)
		}
	}
}

// rotor's refusal of short chains names the smallest limit at which it has a sequence.
func TestRotorsSmallestLimit(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(23, 24))
	for range 200 {
		p := strategy.Problem{Chain: plantest.Chain(rnd, 1+rnd.IntN(8)), Options: strategy.Options{Slots: 60 + rnd.IntN(60)}}
		_, err := solveRotor(t.Context(), p)
		small, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || small.Found {
			t.Fatalf("%v", err)
		}
		p.Memory = small.Smallest
		if _, err := solveRotor(t.Context(), p); err != nil {
			t.Fatalf("at its smallest limit: %v", err)
		}
		p.Memory--
		if _, err := solveRotor(t.Context(), p); err == nil {
			t.Fatalf("%d bytes work, too", p.Memory)
		}
	}
}

// The refusal of a long chain names an op that binds in a sequence of the smallest limit, made without times.
func TestRefusalOfLongChains(t *testing.T) {
	t.Parallel()
	c := deepChain(longRefusal + 2)
	for _, s := range []strategy.Sequencer{{Name: "rotor", Solve: solveRotor}, {Name: "rotor-exact", Solve: rotorExact.solve}} {
		_, err := s.Solve(t.Context(), strategy.Problem{Chain: c, Memory: 1 << 20})
		small, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || small.Op.Layer == 0 || small.LayerName != c.Layer(small.Op.Layer).Name {
			t.Fatalf("%s: %v", s.Name, err)
		}
		k, err := newCosts(c)
		if err != nil {
			t.Fatal(err)
		}
		if least := k.a[0] + k.least(t.Context(), false); small.Smallest < least || s.Name == "rotor-exact" && small.Smallest != least || small.Smallest > least*21/20 {
			t.Errorf("%s: %d is the smallest, of all %d", s.Name, small.Smallest, least)
		}
	}
}
