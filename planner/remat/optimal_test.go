package remat

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// generalOptimum returns the optimum of exhaustive search over every legal sequence.
func generalOptimum(c *chain.Chain, memory int64) *float64 {
	return (&search{c: c, memory: memory, general: true, best: map[state]float64{}}).run()
}

// anyChain makes a small chain. In half of them gradients have any size, where theorems of the thesis fail.
func anyChain(rng *rand.Rand, n, i int) *chain.Chain {
	c := randomChain(rng, n, i%2 == 1)
	for l := range c.Layers {
		if i%4 > 1 {
			c.Layers[l].GradientBytes = rng.Int64N(12)
		}
	}
	return c
}

// wholeSearch searches without a plan to start from.
func wholeSearch(t testing.TB, c *chain.Chain, memory int64, states int) (*costs, *found) {
	t.Helper()
	k, err := newCosts(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := k.wholeSpace(memory).search(t.Context(), infinite, states)
	if err != nil {
		t.Fatal(err)
	}
	return k, f
}

// The search against exhaustive search over every legal sequence, at every limit: equal makespans, proved, and infeasible together;
// the independent checker agrees. Nothing of a chain's structure is known to either.
func TestSearchIsOptimal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(41, 42))
	judges := [2]*judge{{t: t}, {t: t}} // the checker knows no separate cost of forwards that save nothing, as every other chain has
	infeasible, chains := 0, 600
	if testing.Short() {
		chains = 100
	}
	for i := range chains {
		c := anyChain(rng, 1+rng.IntN(5), i)
		for memory := int64(0); memory <= storeAllPeak(t, c); memory++ {
			want := generalOptimum(c, memory)
			k, f := wholeSearch(t, c, memory, 1<<20)
			switch {
			case !f.optimal() || want == nil != (f.seq == nil) || want != nil && *want != k.seconds(f.ticks):
				t.Fatalf("chain %d at %d: %+v, want %v: %+v", i, memory, f, show(want), c)
			case want == nil:
				infeasible++
			case judges[i%2].accept("search", strategy.Problem{Chain: c, Memory: memory}, f.seq) != *want:
				t.Fatalf("chain %d at %d: %v does not take %v", i, memory, f.seq, *want)
			}
		}
	}
	if infeasible < 15*chains {
		t.Errorf("only %d infeasible limits", infeasible)
	}
	judges[0].oracle()
}

// proved solves a problem and returns what was proved.
func proved(t testing.TB, p strategy.Problem) (seq schedule.Sequence, makespan, bound float64) {
	t.Helper()
	p.Proved = func(b float64) { bound = b }
	seq, err := solveOptimal(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := schedule.Simulate(p.Chain, seq, p.Limits())
	if err != nil {
		t.Fatal(err)
	}
	return seq, r.Makespan, bound
}

// lemma3 is the chain on which Lemma 3 of the thesis fails.
func lemma3(t *testing.T) strategy.Problem {
	t.Helper()
	var file smallVectors
	readJSON(t, filepath.Join("testdata", "remat_errata.json"), &file)
	for _, k := range file.Cases {
		if k.Name == "lemma3" {
			return strategy.Problem{Chain: k.Chain, Memory: k.Memory}
		}
	}
	t.Fatal("no such chain")
	return strategy.Problem{}
}

// Where Lemma 3 fails: 22 instead of 31, by the search, by parts of a plan that are solved again, and proved without a link alone.
func TestLemma3(t *testing.T) {
	t.Parallel()
	p := lemma3(t)
	if seq, makespan, bound := proved(t, p); makespan != 22 || bound != 22 {
		t.Errorf("%v takes %v, proved is %v", seq, makespan, bound)
	}
	floating, err := rotorFloating.solve(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	k, err := newCosts(p.Chain)
	if err != nil {
		t.Fatal(err)
	}
	p.States = DefaultStates
	seq, err := k.improved(t.Context(), p, floating)
	if err != nil || (&judge{t: t}).accept("improved", p, seq) != 22 {
		t.Errorf("%v, made better: %v (%v)", floating, seq, err)
	}
	p.Link.Bandwidth = 1
	if _, makespan, bound := proved(t, p); makespan != 22 || bound != 0 {
		t.Errorf("with a link: %v, proved is %v", makespan, bound)
	}
}

// A search that ends early is never slower than rotor-floating, and proves no more than is so.
func TestSearchWithinItsBudget(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(43, 44))
	between := 0
	for i := range 150 {
		c := anyChain(rng, 6+rng.IntN(2), i)
		_, floating := frontiers(t, c)
		k, err := newCosts(c)
		if err != nil {
			t.Fatal(err)
		}
		least, all := floating.Breakpoints()[0].Memory, storeAllPeak(t, c)
		p := strategy.Problem{Chain: c, Memory: least + rng.Int64N(all-least+1)}
		_, best, bound := proved(t, p)
		if best != bound {
			t.Fatalf("%v, proved is %v", best, bound)
		}
		start, err := floating.makespan(p.Memory)
		if err != nil {
			t.Fatal(err)
		}
		for p.States = 1; p.States < 1000; p.States *= 3 {
			_, makespan, bound := proved(t, p)
			if makespan > start || makespan < best || bound > best {
				t.Fatalf("%d states: %v, proved is %v; floating takes %v, the best %v", p.States, makespan, bound, start, best)
			}
			if bound < best && bound > k.seconds(0) {
				between++
			}
		}
	}
	if between < 20 {
		t.Errorf("something, but not all, was proved only %d times", between)
	}
}

// Parts that are solved again make a plan no slower and keep it within the limit, in chains of any length.
func TestImproved(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(45, 46))
	planned, better := 0, 0
	for i := range 80 {
		c := anyChain(rng, 5+rng.IntN(40), i)
		curve, err := Revolve(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c) * 2 / 3, Options: strategy.Options{States: DefaultStates}}
		seq, err := curve.Sequence(p.Memory)
		if _, refused := errors.AsType[*pipeline.InfeasibleError](err); refused {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		planned++
		r, err := schedule.Simulate(c, seq, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		k, err := newCosts(c)
		if err != nil {
			t.Fatal(err)
		}
		now, err := k.improved(t.Context(), p, seq)
		if err != nil {
			t.Fatal(err)
		}
		makespan := (&judge{t: t}).accept("improved", p, now)
		if makespan > r.Makespan {
			t.Errorf("%v, it was %v", makespan, r.Makespan)
		}
		if makespan < r.Makespan {
			better++
		}
	}
	if planned < 20 || better < 9*planned/10 {
		t.Errorf("only %d plans of %d are better", better, planned)
	}
}

// The smallest limit of a refusal is that of all sequences.
func TestSmallestOfAll(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(47, 48))
	lower := 0
	for i := range 300 {
		c := anyChain(rng, 1+rng.IntN(5), i)
		_, err := solveOptimal(t.Context(), strategy.Problem{Chain: c, Memory: -1})
		small, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || small.Found || generalOptimum(c, small.Smallest) == nil || generalOptimum(c, small.Smallest-1) != nil {
			t.Fatalf("%v: %+v", err, c)
		}
		_, floating := frontiers(t, c)
		if small.Smallest < floating.Breakpoints()[0].Memory {
			lower++
		}
	}
	t.Logf("lower than rotor-floating's at %d of 300", lower)
}

// A search can be canceled.
func TestSearchIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k, err := newCosts(plantest.Chain(rand.New(rand.NewPCG(1, 1)), 9))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := k.wholeSpace(40).search(ctx, infinite, 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", f, err)
	}
}
