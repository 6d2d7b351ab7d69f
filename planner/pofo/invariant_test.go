package pofo

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func named(t testing.TB, all []strategy.Sequencer, name string) strategy.Sequencer {
	t.Helper()
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no strategy %s", name)
	return strategy.Sequencer{}
}

// Every strategy on random chains, on one link and duplex: what it returns keeps the rules within the limit; pofo is never
// slower than rotor-exact, offload-dynprog and autocapper.
func TestNeverWorse(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	pofo := named(t, Strategies(), "pofo")
	others := []strategy.Sequencer{
		named(t, remat.Strategies(), "rotor-exact"), named(t, offload.Strategies(), "offload-dynprog"), named(t, Strategies(), "autocapper"),
	}
	j, beaten := &judge{t: t}, 0
	problems := 300
	if testing.Short() {
		problems = 100
	}
	for i := range problems {
		p := randomProblem(t, rng, 8)
		p.Link.Duplex = i%2 == 1
		mine, best := j.makespan(pofo, p), math.Inf(1)
		for _, s := range others {
			best = min(best, j.makespan(s, p))
		}
		for _, s := range Strategies() {
			j.makespan(s, p)
		}
		if mine > best {
			t.Fatalf("at %d, %+v: pofo %v, another %v: %+v", p.Memory, p.Link, mine, best, p.Chain)
		}
		if mine < best {
			beaten++
		}
	}
	if beaten < problems/10 || j.refused < problems/3 {
		t.Errorf("pofo is faster than the others at %d problems only, %d refusals", beaten, j.refused)
	}
	j.oracle()
}

// The smallest limit of a refusal works, and a byte less is refused with the same.
func TestSmallest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	checked := map[string]int{}
	for range 100 {
		p := randomProblem(t, rng, 6)
		for _, s := range Strategies() {
			p.Memory = 0
			_, err := s.Solve(context.Background(), p)
			refusal, ok := errors.AsType[*pipeline.InfeasibleError](err)
			if !ok {
				continue // a chain of nothing fits in nothing
			}
			p.Memory = refusal.Smallest
			(&judge{t: t}).makespan(s, p)
			p.Memory--
			_, err = s.Solve(context.Background(), p)
			if again, ok := errors.AsType[*pipeline.InfeasibleError](err); !ok || again.Smallest != refusal.Smallest || again.Op != refusal.Op {
				t.Fatalf("%s at %d: %v, want the smallest limit %d", s.Name, p.Memory, err, refusal.Smallest)
			}
			checked[s.Name]++
		}
	}
	for _, s := range Strategies() {
		if checked[s.Name] < 90 {
			t.Errorf("%s: %d smallest limits checked", s.Name, checked[s.Name])
		}
	}
}

// The same problem gives the same sequence, whatever the number of processors.
func TestDeterminism(t *testing.T) {
	// Serial: it sets the number of processors.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := deepChain(24)
	high, err := storeAllPeak(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Strategies() {
		var first schedule.Sequence
		for i, processors := range []int{1, 2, 8, 1} {
			runtime.GOMAXPROCS(processors)
			seq, err := s.Solve(context.Background(), problem(c, high/4, 2e9))
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = seq
			}
			if !slices.Equal(seq, first) {
				t.Errorf("%s with %d processors: %v, before %v", s.Name, processors, seq, first)
			}
		}
	}
}

// A link that cannot be used, options that cannot be meant, and an ended context are errors of their own.
func TestBadInput(t *testing.T) {
	t.Parallel()
	c := deepChain(6)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range Strategies() {
		for _, bandwidth := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			if _, err := s.Solve(context.Background(), problem(c, 1<<40, bandwidth)); !errors.Is(err, offload.ErrLink) {
				t.Errorf("%s with bandwidth %g: %v", s.Name, bandwidth, err)
			}
		}
		if _, err := s.Solve(context.Background(), problem(&chain.Chain{}, 1, 1)); err == nil {
			t.Errorf("%s: no error for an empty chain", s.Name)
		}
		if _, err := s.Solve(context.Background(), problem(deepChain(maxLayers+2), 1<<50, 1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v for %d layers", s.Name, err, maxLayers+2)
		}
		p := problem(c, 60<<20, 1e9)
		if _, err := s.Solve(context.Background(), p); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if _, err := s.Solve(ended, p); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v", s.Name, err)
		}
	}
	for _, p := range []strategy.Problem{{Options: strategy.Options{PofoSlots: -1}}, {Options: strategy.Options{PofoSlots: maxCells + 1}}} {
		p.Chain, p.Memory, p.Link = c, 1<<40, schedule.Link{Bandwidth: 1}
		if _, err := solvePofo(context.Background(), p); !errors.Is(err, ErrOptions) {
			t.Errorf("%d slots: %v", p.PofoSlots, err)
		}
	}
	low := problem(c, 1<<30, 1)
	low.HighMemory = 1
	if _, err := solveCapper(context.Background(), low); !errors.Is(err, ErrOptions) {
		t.Errorf("a higher limit below the limit: %v", err)
	}
}

// Smaller tables give other sequences, never wrong ones; N is the number of cells.
func TestFewCells(t *testing.T) {
	t.Parallel()
	c := deepChain(30)
	high, err := storeAllPeak(c)
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{t: t}
	for _, cells := range []int{1, 3, 50, 200} {
		p := problem(c, high/4, 1e9)
		p.PofoSlots = cells
		t.Logf("N = %d: %v", cells, j.makespan(named(t, Strategies(), "pofo"), p))
	}
	j.oracle()
}

// FuzzStrategies runs every strategy on chains made from bytes.
func FuzzStrategies(f *testing.F) {
	f.Add([]byte{3, 4, 5, 6, 7, 1, 0, 2, 2, 9, 9, 1, 0, 0}, uint16(30), byte(2))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint16(0), byte(1))
	f.Add([]byte{255, 1, 200, 0, 9, 3, 200, 7, 7, 7, 90, 90, 250, 250, 1, 2, 3, 4, 5, 6, 7, 8}, uint16(600), byte(255))
	f.Fuzz(func(t *testing.T, data []byte, memory uint16, bandwidth byte) {
		c := chainOf(data)
		if c == nil {
			return
		}
		j := &judge{t: t}
		for _, s := range Strategies() {
			for _, duplex := range []bool{false, true} {
				p := problem(c, int64(memory), float64(bandwidth)/16+1e-3)
				p.Link.Duplex = duplex
				j.makespan(s, p)
			}
		}
	})
}

// chainOf makes a layer of every seven bytes, up to nine of them.
func chainOf(data []byte) *chain.Chain {
	c := &chain.Chain{Name: "fuzz"}
	for len(data) >= 7 && c.Len() < 9 {
		b := data[:7]
		data = data[7:]
		c.InputBytes = int64(b[0]) / 8
		c.Layers = append(c.Layers, chain.Layer{
			ForwardS: float64(b[0]), BackwardS: float64(b[1]) / 3,
			OutputBytes: int64(b[2]), SavedBytes: int64(b[2]) + int64(b[3]), GradientBytes: int64(b[4]),
			ForwardOverheadBytes: int64(b[5]), BackwardOverheadBytes: int64(b[6]),
		})
	}
	if c.Len() == 0 {
		return nil
	}
	return c
}
