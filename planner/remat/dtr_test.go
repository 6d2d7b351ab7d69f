package remat

import (
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// The invariant of the simulated runtime after every computation, and what its orders become: a sequence that keeps the
// rules and runs every backward once.
func TestEvictorKeepsItsBudget(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	orders, evicted := 0, 0
	for range 300 {
		c := randomChain(rng, 1+rng.IntN(9), false)
		for _, share := range []float64{1, 0.9, 0.75, 0.6, 0.5, 0.4} {
			e := newEvictor(c, int64(share*float64(storeAllPeak(t, c))))
			order := e.order()
			if order == nil {
				continue
			}
			orders++
			if len(order) > 2*c.Len() {
				evicted++
			}
			replayBudget(t, c, e.budget, order)
			seq := sequenceOf(order, c.Len())
			if err := schedule.Verify(c, seq); err != nil {
				t.Fatalf("%v: %v from %v of %+v", err, seq, order, c)
			}
		}
	}
	if orders < 500 || evicted < 100 {
		t.Errorf("only %d orders, %d of them with an eviction", orders, evicted)
	}
}

// replayBudget checks that the order can run within the budget with the best choice of evictions, not dtr's. The sets that the rest of the
// order reads before it computes them again must fit beside each computation.
func replayBudget(t *testing.T, c *chain.Chain, budget int64, order []compute) {
	t.Helper()
	for i, op := range order {
		used := c.Activation(0)
		for l := 1; l <= c.Len(); l++ {
			if l != op.layer && readBeforeWritten(order[i:], l) {
				used += c.Saved(l)
			}
		}
		layer := c.Layer(op.layer)
		if op.back {
			used += c.Gradient(op.layer) + c.Saved(op.layer) + c.Gradient(op.layer-1) + layer.BackwardOverheadBytes
		} else {
			used += gradientBefore(c, order[:i]) + c.Saved(op.layer) + layer.ForwardOverheadBytes
		}
		if used > budget {
			t.Fatalf("computation %d of %v needs %d bytes, the budget is %d: %+v", i, order, used, budget, c)
		}
	}
}

// readBeforeWritten reports whether ā_l is read by the rest of an order before it is computed in it.
func readBeforeWritten(rest []compute, l int) bool {
	for _, op := range rest {
		if op.layer-1 == l || op.layer == l && op.back {
			return true
		}
		if op.layer == l {
			return false
		}
	}
	return false
}

// gradientBefore returns the size of the gradient that is in memory after the computations so far.
func gradientBefore(c *chain.Chain, done []compute) int64 {
	for i := len(done) - 1; i >= 0; i-- {
		if done[i].back {
			return c.Gradient(done[i].layer - 1)
		}
	}
	return 0
}

// The paper's Theorem 3.1: N unit layers within 2*ceil(sqrt(N)) tensors take O(N) computations. Ours hold a_0, the
// gradients and the output beside them; the constant is what this simulation took, rounded up.
func TestSquareRootBudgetTakesLinearTime(t *testing.T) {
	t.Parallel()
	for _, n := range []int{16, 64, 144, 256} {
		c := unitChain(n)
		root := int64(1)
		for root*root < int64(n) {
			root++
		}
		order := newEvictor(c, 2*root+3).order()
		if order == nil {
			t.Errorf("%d layers do not fit in %d", n, 2*root+3)
		} else if len(order) > 5*n {
			t.Errorf("%d layers within %d: %d computations", n, 2*root+3, len(order))
		}
	}
}

// unitChain has layers of one second and one byte.
func unitChain(n int) *chain.Chain {
	c := &chain.Chain{Name: "unit", InputBytes: 1}
	for range n {
		c.Layers = append(c.Layers, chain.Layer{Name: "l", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1})
	}
	return c
}

// An input is dropped where it is computed again before it is read again, and kept otherwise.
func TestSequenceOfAnOrder(t *testing.T) {
	t.Parallel()
	f := func(l int) compute { return compute{layer: l} }
	b := func(l int) compute { return compute{layer: l, back: true} }
	for _, k := range []struct {
		order []compute
		want  string
	}{
		{[]compute{f(1), f(2), b(2), b(1)}, "Fall1 Fall2 B2 B1"},
		{[]compute{f(1), f(2), f(3), b(3), f(1), f(2), b(2), b(1)}, "Fck1 F2 Fall3 B3 Fall1 Fall2 B2 B1"},
		{[]compute{f(1), f(2), f(3), f(1), b(3), f(2), b(2), b(1)}, "Fck1 F2 Fall3 Fall1 B3 Fall2 B2 B1"},
		{[]compute{f(1), f(2), f(3), b(3), f(2), b(2), f(1), b(1)}, "Fck1 Fck2 Fall3 B3 Fall2 B2 Fall1 B1"},
		{[]compute{f(1), f(2), f(3), f(4), b(4), f(1), f(2), f(3), b(3), f(1), f(2), b(2), b(1)}, "Fck1 F2 F3 Fall4 B4 Fck1 F2 Fall3 B3 Fall1 Fall2 B2 B1"},
	} {
		if got := sequenceOf(k.order, 4).String(); got != k.want {
			t.Errorf("%v: %s, want %s", k.order, got, k.want)
		}
	}
}
