package improve

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// tiny is a chain of two layers and the loss.
func tiny() *chain.Chain {
	return &chain.Chain{Name: "tiny", InputBytes: 2, Layers: []chain.Layer{
		{Name: "one", ForwardS: 4, BackwardS: 4, OutputBytes: 4, SavedBytes: 6, GradientBytes: 4},
		{Name: "two", ForwardS: 4, BackwardS: 4, OutputBytes: 3, SavedBytes: 5, GradientBytes: 3},
		{Name: "loss", ForwardS: 6, BackwardS: 6, OutputBytes: 1, SavedBytes: 1},
	}}
}

func parse(t testing.TB, text string) schedule.Sequence {
	t.Helper()
	seq, err := schedule.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func limits(memory int64, bandwidth float64) schedule.Limits {
	return schedule.Limits{Memory: memory, Link: schedule.Link{Bandwidth: bandwidth}}
}

// Each kind of move finds what it is for.
func TestMoves(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		name, from, to string
		limits         schedule.Limits
		overhead       int64 // of the loss
	}{
		{"drop", "O1 Fall1 Fall2 Fall3 B3 B2 P1 B1", "Fall1 Fall2 Fall3 B3 B2 B1", limits(100, 1), 0},
		{"keep", "Fck1 F2 Fall3 B3 Fall1 Fall2 B2 B1", "Fall1 Fall2 Fall3 B3 B2 B1", limits(100, 1), 0},
		{"shift", "O1 Fall1 Fall2 Fall3 B3 B2 P1 B1", "O1 Fall1 Fall2 Fall3 B3 P1 B2 B1", limits(20, 2), 8},
		{"recompute", "Fck1 O2 Fck2 Fall3 B3 P2 Fall2 B2 Fall1 B1", "Fck1 Fall2 Fall3 B3 B2 Fall1 B1", limits(18, 0.1), 0},
		{"offload", "Fck1 O2 Fck2 Fall3 B3 P2 Fall2 B2 Fall1 B1", "O1 Fall1 Fall2 Fall3 B3 B2 P1 B1", limits(18, 100), 0},
	} {
		c := tiny()
		c.Layers[2].ForwardOverheadBytes = k.overhead
		s, err := New(c, k.limits, parse(t, k.from))
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if err := s.Run(context.Background(), 1000); err != nil {
			t.Fatal(err)
		}
		if got, makespan := s.Best(); got.String() != k.to || !s.done {
			t.Errorf("%s: %v takes %v after %d steps, want %s", k.name, got, makespan, s.Steps(), k.to)
		}
	}
}

// randomChain makes a chain with whole seconds and bytes.
func randomChain(rng *rand.Rand, n int) *chain.Chain {
	size := func() int64 { return rng.Int64N(9) }
	c := &chain.Chain{Name: "random", InputBytes: size()}
	for range n {
		out := size()
		c.Layers = append(c.Layers, chain.Layer{
			ForwardS: float64(size()), BackwardS: float64(size()), OutputBytes: out, SavedBytes: out + size(),
			GradientBytes: size(), ForwardOverheadBytes: size(), BackwardOverheadBytes: size(),
		})
	}
	return c
}

// periodic makes a valid sequence of compute ops: segments that are run again, of random lengths.
func periodic(rng *rand.Rand, n int) (seq schedule.Sequence, turn int) {
	var starts []int
	for s := 1; s < n; s += 1 + rng.IntN(3) {
		starts = append(starts, s)
	}
	end := n
	var back schedule.Sequence
	for i, s := range starts {
		last := n - 1
		if i+1 < len(starts) {
			last = starts[i+1] - 1
		}
		seq = append(seq, chainOf(s, last)...)
		var again schedule.Sequence
		for l := s; l <= last; l++ {
			again = append(again, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
		}
		for l := last; l >= s; l-- {
			again = append(again, schedule.Op{Kind: schedule.Backward, Layer: l})
		}
		back = append(again, back...)
	}
	turn = len(seq) + 1
	seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: end}, schedule.Op{Kind: schedule.Backward, Layer: end})
	return append(seq, back...), turn
}

// peakOf returns the most memory of any op.
func peakOf(memory []int64) int64 { return slices.Max(memory) }

// Without gaps, memory is compared with the simulation. With gaps, it is compared with the limit at which the latest placement still runs:
// exactly the memory that the gaps leave, and not a byte less.
func TestMemory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	placed := 0
	for i := range 500 {
		n := 2 + rng.IntN(6)
		c := randomChain(rng, n)
		compute, turn := periodic(rng, n)
		r, err := schedule.Simulate(c, compute, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatalf("chain %d: %v: %v", i, err, compute)
		}
		if got := max(peakOf(new(Meter).Memory(c, compute, nil)), c.InputBytes); got != r.Peak {
			t.Fatalf("chain %d: peak %d, simulated %d: %v", i, got, r.Peak, compute)
		}
		gaps := slices.DeleteFunc(Gaps(c, compute), func(Gap) bool { return rng.IntN(2) == 0 })
		least := peakOf(new(Meter).Memory(c, compute, gaps))
		all := Place(c, compute, gaps, turn, limits(least, 1))
		if len(all) == 0 {
			t.Fatalf("chain %d: nothing placed in %d bytes: %v %v", i, least, compute, gaps)
		}
		last := all[len(all)-1]
		if _, err := schedule.Simulate(c, last, limits(max(least, c.InputBytes), 1)); err != nil {
			t.Fatalf("chain %d: %v does not run in %d bytes: %v", i, last, least, err)
		}
		if _, err := schedule.Simulate(c, last, limits(least-1, 1)); err == nil {
			t.Fatalf("chain %d: %v runs in %d bytes", i, last, least-1)
		}
		if Place(c, compute, gaps, turn, limits(least-1, 1)) != nil {
			t.Fatalf("chain %d: placed in %d bytes", i, least-1)
		}
		if len(gaps) > 0 {
			placed++
		}
	}
	if placed < 300 {
		t.Errorf("only %d chains with gaps", placed)
	}
}

// A search never gets worse, keeps the rules and the limit at every step, stops at its budget, goes on where it stopped,
// and finds the same every time.
func TestSearch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	better := 0
	for i := range 200 {
		n := 2 + rng.IntN(6)
		c := randomChain(rng, n)
		compute, _ := periodic(rng, n)
		lim := limits(max(peakOf(new(Meter).Memory(c, compute, nil)), c.InputBytes), []float64{0.5, 2, 8}[rng.IntN(3)])
		lim.Link.Duplex = i%2 == 1
		s, err := New(c, lim, compute)
		if err != nil {
			t.Fatal(err)
		}
		_, first := s.Best()
		last := first
		for round := 0; round < 1000 && !s.done; round++ {
			before := s.Steps()
			if err := s.Run(context.Background(), 37); err != nil {
				t.Fatal(err)
			}
			seq, makespan := s.Best()
			r, err := schedule.Simulate(c, seq, lim)
			if err != nil || r.Makespan != makespan || makespan > last*(1+1e-9) || s.Steps() > before+37 {
				t.Fatalf("chain %d: %v takes %v, simulated %v (%v), before %v; %d steps after %d", i, seq, makespan, r, err, last, s.Steps(), before)
			}
			if s.Steps() == before+37 && makespan == last && round > 0 {
				break // the budget of one call is too small for a whole round of moves
			}
			last = makespan
		}
		one, two := run(t, c, lim, compute), run(t, c, lim, compute)
		if !slices.Equal(one, two) {
			t.Fatalf("chain %d: %v and %v", i, one, two)
		}
		if r, err := schedule.Simulate(c, one, lim); err != nil || r.Makespan > first*(1+1e-9) {
			t.Fatalf("chain %d: %v: %v", i, one, err)
		} else if r.Makespan < first {
			better++
		}
	}
	if better < 100 {
		t.Errorf("only %d of 200 sequences got better", better)
	}
}

func run(t *testing.T, c *chain.Chain, lim schedule.Limits, seq schedule.Sequence) schedule.Sequence {
	t.Helper()
	s, err := New(c, lim, seq)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background(), 5000); err != nil {
		t.Fatal(err)
	}
	if !s.done {
		t.Errorf("not done after %d steps", s.Steps())
	}
	best, _ := s.Best()
	return best
}

func TestEnds(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	from := parse(t, "Fck1 F2 Fall3 B3 Fall1 Fall2 B2 B1")
	s, err := New(tiny(), limits(100, 1), from)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ended, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if best, _ := s.Best(); !slices.Equal(best, from) {
		t.Errorf("%v, want %v", best, from)
	}
	if _, err := New(tiny(), limits(3, 1), from); err == nil {
		t.Error("a sequence that does not fit was taken")
	}
	if _, err := New(tiny(), limits(100, 1), from[1:]); err == nil {
		t.Error("a sequence that breaks the rules was taken")
	}
	if _, err := New(&chain.Chain{}, limits(100, 1), nil); err == nil {
		t.Error("an empty chain was taken")
	}
}

// FuzzSearch starts from any text that keeps the rules.
func FuzzSearch(f *testing.F) {
	for _, seed := range []string{
		"Fall1 Fall2 Fall3 B3 B2 B1", "O1 Fall1 O2 Fall2 Fall3 B3 P2 B2 P1 B1", "Fck1 F2 Fall3 B3 Fall1 Fall2 B2 B1",
		"O1 Fck1 P1 O1 F2 Fall3 B3 P1 Fall1 Fall2 B2 B1", "O1 Fck1 Fall2 Fall3 B3 P1 Fall1 B2 B1",
	} {
		f.Add(seed, uint8(20), true)
	}
	f.Fuzz(func(t *testing.T, text string, memory uint8, duplex bool) {
		seq, err := schedule.Parse(text)
		if err != nil {
			return
		}
		lim := limits(int64(memory), 1.5)
		lim.Link.Duplex = duplex
		s, err := New(tiny(), lim, seq)
		if err != nil {
			return
		}
		_, before := s.Best()
		if err := s.Run(context.Background(), 300); err != nil {
			t.Fatal(err)
		}
		best, after := s.Best()
		if r, err := schedule.Simulate(tiny(), best, lim); err != nil || r.Makespan != after || after > before*(1+1e-9) {
			t.Errorf("%v from %v: %v, before %v (%v)", best, seq, after, before, err)
		}
	})
}

// A prefetch starts as late as it can: with the op whose time covers its transfer, or earlier if that op needs the room.
func TestPlaceIsLate(t *testing.T) {
	t.Parallel()
	compute := parse(t, "Fall1 Fall2 Fall3 B3 B2 B1")
	for _, k := range []struct {
		limits schedule.Limits
		want   string
	}{
		{limits(20, 0.5), "O1 Fall1 Fall2 Fall3 B3 P1 B2 B1"},
		{limits(20, 0.4), "O1 Fall1 Fall2 Fall3 P1 B3 B2 B1"},
		{limits(18, 0.5), "O1 Fall1 Fall2 Fall3 B3 B2 P1 B1"},
	} {
		got := Place(tiny(), compute, []Gap{{Layer: 1, From: 0, To: 5}}, 3, k.limits)
		if len(got) == 0 || got[0].String() != k.want {
			t.Errorf("%+v: %v, want %s first", k.limits, got, k.want)
		}
	}
}
