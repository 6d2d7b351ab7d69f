package remat

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func needSolver(t *testing.T) {
	t.Helper()
	if !milp.Built {
		t.Skip(milp.ErrNoSolver)
	}
}

// Without a solver the strategy is not offered, and asked all the same it says what is missing.
func TestCheckmateWithoutSolver(t *testing.T) {
	t.Parallel()
	offered := slices.ContainsFunc(Strategies(), func(s strategy.Sequencer) bool { return s.Name == Checkmate })
	if offered != milp.Built {
		t.Errorf("offered: %v, built: %v", offered, milp.Built)
	}
	c := unitChain(3)
	_, err := solveCheckmate(context.Background(), strategy.Problem{Chain: c, Memory: storeAllPeak(t, c)})
	if errors.Is(err, milp.ErrNoSolver) == milp.Built {
		t.Errorf("built: %v, error: %v", milp.Built, err)
	}
}

// The second phase needs no solver: whatever is kept, the order computes what each stage reads, and becomes a sequence
// that keeps the rules.
func TestAnyKeptSetsGiveASequence(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		c := randomChain(rng, 1+rng.IntN(7), false)
		k := newKept(c.Len())
		for stage := 2; stage <= 2*c.Len(); stage++ {
			for i := 1; i < min(stage, 2*c.Len()+1-stage); i++ {
				k[stage][i] = rng.IntN(2) == 0
			}
		}
		seq := sequenceOf(k.order(), c.Len())
		if err := schedule.Verify(c, seq); err != nil {
			t.Fatalf("%v: %v", seq, err)
		}
	}
}

// On small chains the integer program is solved: never better than the optimum of brute force, never worse than keeping
// nothing, store-all where that fits, and judged by the oracle.
func TestCheckmateOnSmallChains(t *testing.T) {
	t.Parallel()
	needSolver(t)
	rng := rand.New(rand.NewPCG(7, 8))
	j := &judge{t: t}
	optimal, solved := 0, 0
	for range 25 {
		c := randomChain(rng, 2+rng.IntN(3), false)
		peak := storeAllPeak(t, c)
		for _, memory := range []int64{peak / 2, peak * 2 / 3, peak * 4 / 5, peak - 1, peak} {
			p := strategy.Problem{Chain: c, Memory: memory}
			got, best := j.makespan(Checkmate, p), j.makespan("rotor-floating", p)
			if math.IsNaN(got) {
				continue
			}
			solved++
			if got < best-1e-9 {
				t.Fatalf("%v at %d, the optimum is %v: %+v", got, memory, best, c)
			}
			if plantest.Near(got, best) {
				optimal++
			}
			if all := j.makespan("store-all", p); !math.IsNaN(all) && !plantest.Near(got, all) {
				t.Fatalf("%v at %d, where store-all fits and takes %v: %+v", got, memory, all, c)
			}
		}
	}
	if solved < 45 || optimal*2 < solved {
		t.Errorf("%d solved, %d of them at the optimum", solved, optimal)
	}
	j.oracle()
}

// On a real chain the relaxation is rounded: a valid sequence within the limit, between the optimum and keeping nothing.
func TestCheckmateOnAProfile(t *testing.T) {
	t.Parallel()
	needSolver(t)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	c, err := chain.Read(shared.Chains(t, "resnet50.json"))
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{t: t}
	nothing := j.accept(Checkmate, strategy.Problem{Chain: c, Memory: schedule.NoLimit}, sequenceOf(newKept(c.Len()).order(), c.Len()))
	for _, share := range []int64{80, 60} {
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) * share / 100}
		got, best := j.makespan(Checkmate, p), j.makespan("rotor-exact", p)
		t.Logf("%d %% of store-all's peak: %.4f s, rotor-exact %.4f s", share, got, best)
		if !(got >= best-1e-9 && got < nothing) {
			t.Errorf("%d %%: %v, rotor-exact %v, keeping nothing %v", share, got, best, nothing)
		}
	}
	j.oracle()
}
