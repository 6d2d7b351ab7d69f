package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/multichain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func randomChain(rng *rand.Rand, layers int) *chain.Chain {
	c := &chain.Chain{Name: "random", InputBytes: 1 + rng.Int64N(50), Layers: make([]chain.Layer, layers)}
	for i := range c.Layers {
		a := 1 + rng.Int64N(50)
		c.Layers[i] = chain.Layer{
			Name: "l", ForwardS: float64(1 + rng.IntN(9)), BackwardS: float64(1 + rng.IntN(18)),
			OutputBytes: a, SavedBytes: a + rng.Int64N(80), GradientBytes: a,
		}
	}
	return c
}

// sequencer returns the sequencer of that name.
func sequencer(name string) (strategy.Sequencer, error) {
	for _, s := range append(auto.Members(schedule.Link{Bandwidth: 1}), auto.Strategy()) {
		if s.Name == name {
			return s, nil
		}
	}
	return strategy.Sequencer{}, fmt.Errorf("no sequencer %s", name)
}

// Invariants: what Within returns keeps both limits; a limit that its own plan keeps changes no strategy's plan. Where nothing but
// offloading makes a plan fit, it refuses.
func TestWithinKeepsTheHostLimit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	kept, refused, slowed, chains := 0, 0, 0, 60
	if testing.Short() {
		chains = 15
	}
	for range chains {
		c := randomChain(rng, 3+rng.IntN(9))
		all, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"offload-greedy", "offload-dynprog", "pofo", "autocapper", "auto", "rotor-exact"} {
			s, err := sequencer(name)
			if err != nil {
				t.Fatal(err)
			}
			p := strategy.Problem{Chain: c, Memory: all.Peak * (4 + rng.Int64N(6)) / 10, Link: schedule.Link{Bandwidth: 5 + 20*rng.Float64()}}
			free, err := s.Solve(t.Context(), p)
			if errors.As(err, new(*pipeline.InfeasibleError)) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			needed, err := schedule.HostBytes(c, free)
			if err != nil {
				t.Fatal(err)
			}
			for _, share := range []int64{2, 5, 9, 10} {
				p.HostMemory = max(1, needed*share/10)
				seq, err := s.Within(t.Context(), p)
				if host := (*schedule.HostMemoryError)(nil); errors.As(err, &host) {
					if refused++; share == 10 || host.Needed <= host.Limit || host.Limit != p.HostMemory {
						t.Errorf("%s: %v, its own plan takes %d", name, err, needed)
					}
					continue
				}
				if name == "auto" && errors.As(err, new(*pipeline.InfeasibleError)) {
					refused++
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got, err := schedule.HostBytes(c, seq)
				if err != nil || got > p.HostMemory {
					t.Errorf("%s: %d bytes of copies, the limit is %d (%v)", name, got, p.HostMemory, err)
				}
				if _, err := schedule.Simulate(c, seq, p.Limits()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if share == 10 && name != "auto" && !slices.Equal(seq, free) {
					t.Errorf("%s: a limit that it keeps changes its plan", name)
				}
				if kept++; !slices.Equal(seq, free) {
					slowed++
				}
			}
		}
	}
	if kept < 8*chains || refused < chains/3 || slowed < 3*chains {
		t.Errorf("%d plans, %d others than without a limit, %d refused", kept, slowed, refused)
	}
}

// A strategy of sizes alone is asked once: a slower link would change nothing.
func TestAStrategyOfSizesIsAskedOnce(t *testing.T) {
	t.Parallel()
	s, err := sequencer("least-memory")
	if err != nil {
		t.Fatal(err)
	}
	asked, solve := 0, s.Solve
	s.Solve = func(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
		asked++
		return solve(ctx, p)
	}
	c := randomChain(rand.New(rand.NewPCG(1, 2)), 12)
	p := strategy.Problem{Chain: c, Memory: 1 << 20, Link: schedule.Link{Bandwidth: 7}, Options: strategy.Options{HostMemory: 1}}
	if _, err := s.Within(t.Context(), p); !errors.As(err, new(*schedule.HostMemoryError)) || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	slow := p
	slow.HostMemory, slow.Link.Bandwidth = 0, 0.01
	for i := range slow.Chain.Layers {
		slow.Chain.Layers[i].ForwardS *= float64(1 + i)
	}
	free, err := solve(t.Context(), strategy.Problem{Chain: c, Memory: 1 << 20, Link: p.Link})
	if other, failure := solve(t.Context(), slow); err != nil || failure != nil || !slices.Equal(free, other) {
		t.Errorf("%v (%v) and %v (%v)", free, err, other, failure)
	}
}

// Branches that meet go to strategies that plan them, and to no other.
func TestWithinRefusesBranches(t *testing.T) {
	t.Parallel()
	layer := chain.Layer{ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1}
	c := &chain.Chain{Name: "join", Layers: []chain.Layer{layer, layer, layer}, Branches: []int{1, 1}}
	asked := 0
	s := strategy.Sequencer{Name: "some", Solve: func(context.Context, strategy.Problem) (schedule.Sequence, error) {
		asked++
		return schedule.Sequence{}, nil
	}}
	_, err := s.Within(t.Context(), strategy.Problem{Chain: c})
	if !errors.Is(err, strategy.ErrBranches) || asked > 0 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	for _, other := range multichain.Strategies() {
		if !other.Joins || !strings.Contains(err.Error(), other.Name) {
			t.Errorf("%v names no %s", err, other.Name)
		}
	}
	s.Joins = true
	if _, err := s.Within(t.Context(), strategy.Problem{Chain: c}); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
