package offload

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// brute finds the optimum of a tiny chain by writing out every sequence of forward_all 1..n, backward n..1 and transfers. Every activation
// is offloaded at most once and prefetched at most once, at any places and in any order. The simulation alone decides whether a sequence is
// allowed and how much it costs.
type brute struct {
	t      testing.TB
	sim    *schedule.Simulator
	n      int
	limits schedule.Limits
	best   float64
	tried  int
}

// move says what has happened to an activation.
type move uint8

const (
	stays move = iota
	offloaded
	fetched
)

// bruteForce returns the optimum, infinite when nothing fits.
func bruteForce(t testing.TB, p strategy.Problem) (seconds float64, tried int) {
	t.Helper()
	sim, err := schedule.NewSimulator(p.Chain)
	if err != nil {
		t.Fatal(err)
	}
	b := &brute{t: t, sim: sim, n: p.Chain.Len(), limits: schedule.Limits{Memory: p.Memory, Link: p.Link}, best: math.Inf(1)}
	b.extend(nil, 0, make([]move, b.n))
	return b.best, b.tried
}

// extend continues a sequence of k compute ops with every transfer that may come next, and with the next compute op.
func (b *brute) extend(seq schedule.Sequence, k int, moves []move) {
	if k == 2*b.n {
		b.tried++
		if r, err := b.sim.Run(seq, b.limits); err == nil {
			b.best = min(b.best, r.Makespan)
		}
		return
	}
	for i := range min(k+1, 2*b.n-k, b.n) {
		kind := schedule.Offload
		switch moves[i] {
		case offloaded:
			kind = schedule.Prefetch
		case fetched:
			continue
		}
		moves[i]++
		b.extend(append(seq, schedule.Op{Kind: kind, Layer: i + 1}), k, moves)
		moves[i]--
	}
	op := schedule.Op{Kind: schedule.ForwardAll, Layer: k + 1}
	if k >= b.n {
		op = schedule.Op{Kind: schedule.Backward, Layer: 2*b.n - k}
	}
	b.extend(append(seq, op), k+1, moves)
}

// No strategy is below the optimum, no bound is above it, and one layer and the loss are planned optimally nearly always:
// on one link and on a duplex one.
func TestBruteForce(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	j := &judge{t: t}
	feasible, tried := 0, 0
	optimal := map[string]int{}
	for i := range 500 {
		n := 2
		if i%8 == 0 {
			n = 3
		}
		c := randomChain(rng, n)
		smallest, peak := limitsOf(t, c)
		p := problem(c, smallest-1+rng.Int64N(peak-smallest+2), []float64{0.5, 1, 2}[rng.IntN(3)], i%2 == 0)
		want, count := bruteForce(t, p)
		tried += count
		if p.Memory < smallest {
			if !math.IsInf(want, 1) {
				t.Errorf("%+v at %d: %v possible, and the smallest limit is %d", c, p.Memory, want, smallest)
			}
			expectRefused(t, p, smallest)
			continue
		}
		feasible++
		for _, bound := range []func(strategy.Problem) (float64, error){LowerBound, FractionalBound} {
			if got, err := bound(p); err != nil || got > want*(1+1e-9) {
				t.Errorf("%+v at %d: bound %v (%v) above the optimum %v", c, p.Memory, got, err, want)
			}
		}
		for _, s := range Strategies() {
			got := j.makespan(s.Name, p)
			if got < want*(1-1e-9) {
				t.Errorf("%s: %v below the optimum %v of %+v", s.Name, got, want, p)
			}
			if plantest.Near(got, want) {
				optimal[s.Name]++
			}
		}
	}
	t.Logf("%d sequences tried; optimal at so many of %d problems: %v", tried, feasible, optimal)
	if feasible < 300 || tried < 100000 || optimal["offload-dynprog"]*100 < feasible*95 {
		t.Errorf("%d problems, %d sequences, dynprog optimal at %d", feasible, tried, optimal["offload-dynprog"])
	}
	j.oracle(t, 2000)
}

// Algorithm 5 finds the cheapest of all selections: neither its bounds nor the merging of states lose it.
func TestAlgorithm5IsOptimal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	worst, problems := 1.0, 0
	for range 400 {
		c := randomChain(rng, 2+rng.IntN(9))
		smallest, peak := limitsOf(t, c)
		p := problem(c, smallest+rng.Int64N(peak-smallest+1), float64(1+rng.IntN(12))/4, false)
		k, err := newCosts(p)
		if err != nil {
			t.Fatal(err)
		}
		want := cheapest(newFractional(k))
		got, err := exactAlgorithm5(p)
		if err != nil || !plantest.Near(got, want) {
			t.Fatalf("%v (%v), the cheapest selection takes %v: %+v at %d", got, err, want, c, p.Memory)
		}
		d := newDynprog(newFractional(k))
		if err := d.solve(context.Background(), k.memory/6); err != nil {
			t.Fatal(err)
		}
		if least(d) < want*(1-1e-9) {
			t.Fatalf("%v in coarse cells, below %v", least(d), want)
		}
		worst = max(worst, least(d)/want)
		for _, f := range d.found {
			if idle := d.evaluate(f.away); !plantest.Near(1+idle, 1+f.idle) {
				t.Fatalf("the selection %v costs %v, not %v", f.away, idle, f.idle)
			}
		}
		problems++
	}
	t.Logf("%d problems; with 6 cells at most %.3f times the optimum", problems, worst)
	if worst > 1.7 || worst == 1 {
		t.Errorf("with 6 cells %.3f times the optimum", worst)
	}
}

// cheapest evaluates every selection.
func cheapest(f *fractional) (seconds float64) {
	seconds = math.Inf(1)
	away := make([]bool, f.n)
	for bits := range 1 << f.n {
		for i := range away {
			away[i] = bits>>i&1 == 1
		}
		seconds = min(seconds, f.seconds(f.evaluate(away)))
	}
	return seconds
}

// least returns the least makespan that a search has found, in seconds.
func least(d *dynprog) float64 { return d.seconds(d.found[0].idle) }
