package milp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A build without a solver says what to do; one with it does not claim to have none.
func TestSolverIsThereOrNamed(t *testing.T) {
	t.Parallel()
	_, err := new(Program).Solve(context.Background(), Options{})
	if errors.Is(err, ErrNoSolver) == Built {
		t.Errorf("Built is %v: %v", Built, err)
	}
}

// Knapsacks against every subset.
func TestKnapsacks(t *testing.T) {
	t.Parallel()
	need(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		n := 1 + rng.IntN(12)
		value, weight := make([]float64, n), make([]float64, n)
		var p Program
		var terms []Term
		for i := range n {
			value[i], weight[i] = float64(1+rng.IntN(50)), float64(1+rng.IntN(50))
			terms = append(terms, Term{p.Binary(-value[i]), weight[i]})
		}
		limit := float64(rng.IntN(25 * n))
		p.AtMost(limit, terms...)
		s, err := p.Solve(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want := bestSubset(value, weight, limit); math.Abs(-s.Objective-want) > 1e-6 || !s.Proved {
			t.Fatalf("%v (proved %v), want %v", -s.Objective, s.Proved, want)
		}
		relaxed, err := p.Solve(context.Background(), Options{Relax: true})
		if err != nil || relaxed.Objective > s.Objective+1e-6 {
			t.Fatalf("relaxed %+v, %v; integer %v", relaxed, err, s.Objective)
		}
	}
}

func bestSubset(value, weight []float64, limit float64) float64 {
	best := 0.0
	for set := range 1 << len(value) {
		v, w := 0.0, 0.0
		for i := range value {
			if set>>i&1 == 1 {
				v, w = v+value[i], w+weight[i]
			}
		}
		if w <= limit {
			best = max(best, v)
		}
	}
	return best
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	need(t)
	var p Program
	x := p.Binary(1)
	p.AtLeast(2, Term{x, 1})
	if _, err := p.Solve(context.Background(), Options{}); !errors.Is(err, ErrInfeasible) {
		t.Errorf("x >= 2 of a binary x: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Solve(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	p.Equal(1, Term{x + 1, 1})
	if _, err := p.Solve(context.Background(), Options{}); err == nil {
		t.Error("a row with an unknown variable was taken")
	}
}

// A program that HiGHS does not finish (a market split: Cornuéjols and Dawande, 1998) is left when the context is cancelled.
func TestSolverIsLeftWhenTheContextIsCancelled(t *testing.T) {
	t.Parallel()
	need(t)
	var p Program
	rng := rand.New(rand.NewPCG(1, 1))
	vars := make([]Var, 60)
	for i := range vars {
		vars[i] = p.Binary(0)
	}
	for range 7 {
		var row []Term
		sum := 0
		for _, x := range vars {
			c := rng.IntN(100)
			sum += c
			row = append(row, Term{x, float64(c)})
		}
		p.Equal(float64(sum/2), row...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := p.Solve(ctx, Options{Seconds: 30}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// need skips where no solver is built in.
func need(t *testing.T) {
	t.Helper()
	if !Built {
		t.Skip(ErrNoSolver)
	}
}
