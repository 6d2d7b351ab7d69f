package planner

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// A plan that is given is planned as it is, wherever it fits; elsewhere it is refused with a limit at which it works; and never for
// another chain.
func TestGiven(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(31, 32))
	fits, small := 0, 0
	for range 40 {
		c := plantest.Chain(rnd, 2+rnd.IntN(5))
		s, err := Lookup([]string{"rotor-exact", "offload-greedy", "store-all"}[rnd.IntN(3)])
		if err != nil {
			t.Fatal(err)
		}
		problem := strategy.Problem{Chain: c, Memory: schedule.NoLimit, Link: schedule.Link{Bandwidth: 1 + rnd.Float64()}}
		made, err := s.Solve(context.Background(), problem.Request())
		if err != nil {
			t.Fatal(err)
		}
		mine := pipeline.Given("mine.json", made)
		for _, memory := range []int64{made.Peak(), made.Peak() / 2} {
			problem.Memory = memory
			got, err := mine.Solve(context.Background(), problem.Request())
			refused, ok := errors.AsType[*pipeline.InfeasibleError](err)
			switch {
			case ok:
				problem.Memory = refused.Smallest
				if again, err := mine.Solve(context.Background(), problem.Request()); err != nil || refused.Strategy != "mine.json" || refused.Memory != memory || again.Peak() != refused.Smallest {
					t.Fatalf("%+v: %v", refused, err)
				}
				small++
			case err != nil || !slices.Equal(got.Sequence(), made.Sequence()) || got.Strategy != "mine.json":
				t.Fatalf("%v: %v, not %v", err, got, made)
			default:
				fits++
			}
		}
		other := *c
		other.Name += "?"
		problem.Chain = &other
		if _, err := mine.Solve(context.Background(), problem.Request()); !errors.Is(err, pipeline.ErrOtherChain) {
			t.Errorf("another chain: %v", err)
		}
	}
	if fits < 40 || small < 20 {
		t.Errorf("%d fitted, %d were refused", fits, small)
	}
}
