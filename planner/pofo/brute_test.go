package pofo

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/plantest"
	"plimsoll/planner/strategy"
)

// literal is section 4.2 as it is printed, with the repairs that pofo.go names. It is a recursion over states without any table, in seconds
// and bytes, with a wait for each op. It shares nothing with the program.
type literal struct {
	c    *chain.Chain
	m, b float64 // M, β
}

func (r literal) size(i int, saved bool) float64 {
	if saved {
		return float64(r.c.Saved(i))
	}
	return float64(r.c.Activation(i))
}

func (r literal) delta(i int) float64 { return float64(r.c.Gradient(i)) }

// forward returns M_F of a forward of layer h that saves nothing, in a run from s when δ_t is stored.
func (r literal) forward(s, h int, delta float64) float64 {
	need := delta + r.size(h, false) + float64(r.c.Layer(h).DiscardOverhead())
	if h != s {
		need += r.size(h-1, false)
	}
	return need
}

func (r literal) all(s int, delta float64) float64 {
	return delta + r.size(s, true) + float64(r.c.Layer(s).ForwardOverheadBytes)
}

func (r literal) backward(s int) float64 {
	return r.size(s, true) + r.delta(s) + r.delta(s-1) + float64(r.c.Layer(s).BackwardOverheadBytes)
}

// discards returns the time of F_s..F_t.
func (r literal) discards(s, t int) (sum float64) {
	for l := s; l <= t; l++ {
		sum += r.c.Layer(l).DiscardSeconds()
	}
	return sum
}

// segment is C_Δ(s, t, A, Δ) of section 4.2.3.
func (r literal) segment(s, t int, a, delta float64) float64 {
	layer := r.c.Layer(s)
	best := math.Inf(1)
	if fits := max(r.all(s, r.delta(t)), r.backward(s)) <= r.m-a; fits && s == t {
		wait := max(r.all(s, r.delta(s))-r.b*layer.BackwardS, r.backward(s)) - r.m + a + delta
		return layer.ForwardS + layer.BackwardS + max(wait/r.b, 0)
	} else if fits {
		atEnd := max((r.backward(s)-r.m+a+delta)/r.b, 0)
		left := max(delta-(layer.BackwardS+atEnd)*r.b, 0)
		inner := r.segment(s+1, t, a+r.size(s, true), left)
		left = max(left-inner*r.b, 0)
		best = layer.ForwardS + inner + layer.BackwardS + max((r.all(s, r.delta(t))-r.m+a+left)/r.b, 0) + atEnd
	}
	for x := s; x < t; x++ {
		if r.forward(s, x, r.delta(t)) > r.m-a {
			break
		}
		first := r.segment(s, x, a, delta)
		left := max(delta-first*r.b, 0)
		second := r.segment(x+1, t, a+r.size(x, false), left)
		left = max(left-second*r.b, 0)
		wait := 0.0
		for k := s; k <= x; k++ {
			wait = max(wait, r.forward(s, k, r.delta(t))-r.b*r.discards(k+1, x)-r.m+a+left)
		}
		best = min(best, r.discards(s, x)+second+first+wait/r.b)
	}
	return best
}

// rest is OC_x(s, A, Δ_F, Δ_B) of sections 4.2.1 and 4.2.2.
func (r literal) rest(s int, saved bool, a, f, b float64) float64 {
	in, layer, n := r.size(s-1, saved), r.c.Layer(s), r.c.Len()
	best := math.Inf(1)
	if max(r.all(s, 0), r.backward(s))+in <= r.m-a {
		before := layer.ForwardS + max((r.all(s, 0)-r.m+a+f+in)/r.b, 0)
		after := layer.BackwardS + max((r.backward(s)-r.m+a+b+in)/r.b, 0)
		if s == n {
			return before + after + (max(f-before*r.b, 0)+max(b-after*r.b, 0))/r.b
		}
		best = before + after + r.choices(s+1, true, a, f, b, in, before, after, true)
	}
	for t := s; t < n; t++ {
		need, wait := r.forward(s, t, 0), 0.0
		if t == s && need+in > r.m-a || need > r.m-a {
			break
		}
		stay := true
		for k := s; k <= t; k++ {
			stay = stay && r.forward(s, k, 0)+in <= r.m-a
			wait = max(wait, r.forward(s, k, 0)-r.b*r.discards(s, k-1)-r.m+a+f+in)
		}
		before := r.discards(s, t) + wait/r.b
		after := r.segment(s, t, a+in, b)
		if !math.IsInf(after, 1) {
			best = min(best, before+after+r.choices(t+1, false, a, f, b, in, before, after, stay))
		}
	}
	return best
}

// choices is table 4.1.
func (r literal) choices(s int, saved bool, a, f, b, in, before, after float64, stay bool) float64 {
	left := max(b-after*r.b, 0)
	best := r.rest(s, saved, a, max(f+in-before*r.b, 0), left+in)
	if stay {
		best = min(best, r.rest(s, saved, a+in, max(f-before*r.b, 0), left))
	}
	return best
}

// randomChain makes a small chain with whole seconds and bytes.
func randomChain(rng *rand.Rand, n int) *chain.Chain {
	size := func(below int64) int64 { return rng.Int64N(below) }
	c := &chain.Chain{Name: "random", InputBytes: size(9)}
	overheads := size(3) * 6
	for range n {
		out := size(9)
		c.Layers = append(c.Layers, chain.Layer{
			ForwardS: float64(size(9)), BackwardS: float64(size(9)),
			OutputBytes: out, SavedBytes: out + size(9), GradientBytes: size(9),
			ForwardOverheadBytes: size(1 + overheads), BackwardOverheadBytes: size(1 + overheads),
		})
	}
	return c
}

// randomProblem makes a problem of which the limit is between the smallest of pofo and store-all's peak, or a byte below.
func randomProblem(t testing.TB, rng *rand.Rand, layers int) strategy.Problem {
	t.Helper()
	c := randomChain(rng, 1+rng.IntN(layers))
	p := problem(c, 1<<40, []float64{0.25, 0.5, 1, 2, 5}[rng.IntN(5)])
	k, err := newCosts(p)
	if err != nil {
		t.Fatal(err)
	}
	high, err := storeAllPeak(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Memory = max(0, k.newLeast(t.Context()).memory()-1+rng.Int64N(max(1, high-k.newLeast(t.Context()).memory()+2)))
	return p
}

// Thesis, section 4.2: the program against the printed recursion, where it is feasible and where it is not.
func TestProgramIsLiteral(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	feasible, infeasible := 0, 0
	for range 1500 {
		p := randomProblem(t, rng, 5)
		want := literal{p.Chain, float64(p.Memory), p.Link.Bandwidth}.rest(1, false, 0, 0, 0)
		if got := program(t, p, false); !plantest.Near(got, want) {
			t.Fatalf("at %d, %g: program %v, recursion %v: %+v", p.Memory, p.Link.Bandwidth, got, want, p.Chain)
		}
		if math.IsInf(want, 1) {
			infeasible++
		} else {
			feasible++
		}
	}
	if feasible < 1000 || infeasible < 50 {
		t.Errorf("only %d feasible and %d infeasible problems", feasible, infeasible)
	}
}

// With whole transfers nothing is free earlier than piece by piece.
func TestWholeIsSlower(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	slower := 0
	for range 500 {
		p := randomProblem(t, rng, 5)
		whole, pieces := program(t, p, true), program(t, p, false)
		if whole < pieces*(1-1e-9) || math.IsInf(whole, 1) != math.IsInf(pieces, 1) {
			t.Fatalf("at %d, %g: whole %v, piece by piece %v: %+v", p.Memory, p.Link.Bandwidth, whole, pieces, p.Chain)
		}
		if whole > pieces*(1+1e-9) {
			slower++
		}
	}
	if slower < 20 {
		t.Errorf("the rules differ at %d problems only", slower)
	}
}
