package remat

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// On random chains at every limit, every strategy returns a sequence that fits or a refusal. More memory is never slower. Each strategy is
// at least as good as the strategies whose sequences it could return.
// Only this test finds a strategy that one more byte makes slower, or a strategy that a weaker one beats.
func TestStrategiesOnRandomChains(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	j := &judge{t: t}
	for range 50 {
		c := randomChain(rng, 1+rng.IntN(7), false)
		last := map[string]float64{}
		for memory := int64(-1); memory <= storeAllPeak(t, c)+1; memory++ {
			p := strategy.Problem{Chain: c, Memory: memory, Options: strategy.Options{Slots: 20}}
			now := map[string]float64{}
			for _, s := range always() {
				now[s.Name] = j.makespan(s.Name, p)
				if before, ok := last[s.Name]; ok && !notWorse(now[s.Name], before) {
					t.Fatalf("%s is slower at %d than one byte below: %v, %v: %+v", s.Name, memory, now[s.Name], before, c)
				}
			}
			for better, others := range map[string][]string{
				BranchAndBound:   {"rotor-floating", "dtr"},
				"rotor-floating": {"rotor-exact"},
				"rotor-exact":    {"rotor", "revolve", "periodic", "store-all"},
				"periodic":       {"store-all"},
			} {
				for _, other := range others {
					if !notWorse(now[better], now[other]) {
						t.Fatalf("%s is worse than %s at %d: %v, %v: %+v", better, other, memory, now[better], now[other], c)
					}
				}
			}
			last = now
		}
	}
	if len(j.verdicts) < 2500 || j.refused < 5000 {
		t.Errorf("only %d sequences and %d refusals", len(j.verdicts), j.refused)
	}
	j.oracle()
}

// notWorse compares makespans of which NaN is infeasible.
func notWorse(x, y float64) bool { return math.IsNaN(y) || x <= y*(1+1e-12) }

// A refusal names the smallest limit: there the strategy succeeds and the op is the one at the peak; a byte below it fails.
func TestSmallestLimit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for range 40 {
		c := randomChain(rng, 1+rng.IntN(7), false)
		for _, s := range always() {
			for _, memory := range []int64{math.MinInt64, -1, 0, c.InputBytes} {
				p := strategy.Problem{Chain: c, Memory: memory, Options: strategy.Options{Slots: 25}}
				_, err := s.Solve(context.Background(), p)
				refusal, ok := errors.AsType[*pipeline.InfeasibleError](err)
				if !ok {
					continue
				}
				refused++
				expectTight(t, s, p, refusal)
			}
		}
	}
	if refused < 800 {
		t.Errorf("only %d refusals", refused)
	}
}

func expectTight(t *testing.T, s strategy.Sequencer, p strategy.Problem, refusal *pipeline.InfeasibleError) {
	t.Helper()
	p.Memory = refusal.Smallest
	seq, err := s.Solve(context.Background(), p)
	if err != nil {
		t.Fatalf("%s at its smallest limit: %v", s.Name, err)
	}
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory})
	if err != nil {
		t.Fatal(err)
	}
	// rotor counts in slots and may need more bytes than its sequence.
	if r.Peak != p.Memory && s.Name != "rotor" {
		t.Errorf("%s: peak %d at the smallest limit %d", s.Name, r.Peak, p.Memory)
	}
	if r.PeakOp >= 0 && seq[r.PeakOp] != refusal.Op {
		t.Errorf("%s: the op at the peak is %v, refused for %v", s.Name, seq[r.PeakOp], refusal.Op)
	}
	p.Memory--
	if _, err := s.Solve(context.Background(), p); err == nil {
		t.Errorf("%s: feasible below its smallest limit %d", s.Name, refusal.Smallest)
	}
}

// A frontier falls strictly, and its sequences are those of the strategy at each limit.
func TestFrontierIsTheStrategy(t *testing.T) {
	t.Parallel()
	c := deepChain(16)
	for name, of := range map[string]func(context.Context, *chain.Chain) (*Frontier, error){
		"rotor-exact": Exact, "rotor-floating": Floating, "revolve": Revolve,
	} {
		f, err := of(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		steps := f.Breakpoints()
		if len(steps) < 10 {
			t.Errorf("%s: only %d steps", name, len(steps))
		}
		for i, s := range steps {
			if i > 0 && (s.Memory <= steps[i-1].Memory || s.Makespan >= steps[i-1].Makespan) {
				t.Errorf("%s: step %v after %v", name, s, steps[i-1])
			}
			(&judge{t: t}).expectStep(f, c, s)
			for _, memory := range []int64{s.Memory, s.Memory + 1} {
				expectSame(t, f, name, strategy.Problem{Chain: c, Memory: memory})
			}
		}
		if _, err := f.Sequence(steps[0].Memory - 1); err == nil {
			t.Errorf("%s: a sequence below the first step", name)
		}
		if _, err := f.makespan(math.MinInt64); err == nil {
			t.Errorf("%s: a makespan without memory", name)
		}
		expectSame(t, f, name, strategy.Problem{Chain: c, Memory: schedule.NoLimit})
	}
}

// A sequence known beforehand rules out no best sequence. The test takes chains that are long enough for a known sequence, and limits from
// the smallest to store-all's peak. The strategies are as fast as their frontiers, for which no sequence is known.
func TestWhatIsKnownRulesOutNothingBest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(17, 18))
	planned := 0
	for i := range 12 {
		c := randomChain(rng, fewest+rng.IntN(20), i%2 == 1)
		for name, of := range map[string]func(context.Context, *chain.Chain) (*Frontier, error){"rotor-exact": Exact, "revolve": Revolve} {
			f, err := of(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			steps := f.Breakpoints()
			for k := 0; k < len(steps); k += 1 + len(steps)/25 {
				expectSame(t, f, name, strategy.Problem{Chain: c, Memory: steps[k].Memory})
				planned++
			}
		}
	}
	if planned < 300 {
		t.Errorf("only %d sequences", planned)
	}
}

// A program that knows the best excess still finds it, at every step of a frontier; one that knows a smaller one finds nothing.
func TestCeilingsLeaveTheBest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(19, 20))
	checked := 0
	for range 60 {
		k, err := newCosts(randomChain(rng, 1+rng.IntN(12), false))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []exact{rotorExact, rotorFloating, revolve} {
			for _, s := range solved(t, x.make(k, k.most(), infinite)) {
				best := solved(t, x.make(k, s.bytes, s.ticks))
				if len(best) == 0 || best[len(best)-1] != s {
					t.Errorf("%s in %d bytes: %v, want %v", x.name, s.bytes, best, s)
				}
				if none := solved(t, x.make(k, s.bytes, s.ticks-1)); len(none) > 0 {
					t.Errorf("%s in %d bytes, less than %v: %v", x.name, s.bytes, s, none)
				}
				checked++
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d steps", checked)
	}
}

func solved(t *testing.T, p program) curve {
	t.Helper()
	if err := p.solve(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p.root()
}

func expectSame(t *testing.T, f *Frontier, name string, p strategy.Problem) {
	t.Helper()
	want, err := f.Sequence(p.Memory)
	if err != nil {
		t.Fatal(err)
	}
	got, err := named(t, name).Solve(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("%s at %d: strategy %v, frontier %v", name, p.Memory, got, want)
	}
}

// The same problem gives the same sequence, whatever the number of processors.
func TestDeterminism(t *testing.T) {
	// Serial: it sets the number of processors.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := deepChain(24)
	for _, s := range always() {
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c)}
		if s.Name != "store-all" {
			p.Memory = p.Memory * 3 / 5
		}
		var first string
		for _, processors := range []int{1, 2, 7} {
			runtime.GOMAXPROCS(processors)
			seq, err := s.Solve(context.Background(), p)
			if err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			if first == "" {
				first = seq.String()
			}
			if seq.String() != first {
				t.Errorf("%s: %v with %d processors, %v with one", s.Name, seq, processors, first)
			}
		}
	}
}

// The tiles of rotor's table and the skipping of stretches change nothing: with slots of one byte a long chain has
// rotor-exact's makespan at every limit tried.
func TestRotorWithSlotsOfOneByte(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 12 {
		c := randomChain(rng, 20+rng.IntN(25), i%2 == 1)
		f, err := Exact(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		steps := f.Breakpoints()
		for i := 0; i < len(steps); i += 1 + len(steps)/10 {
			p := strategy.Problem{Chain: c, Memory: steps[i].Memory, Options: strategy.Options{Slots: int(steps[i].Memory)}}
			j := &judge{t: t}
			j.expect("rotor", p, &steps[i].Makespan)
			if j.verdicts[0].Peak != steps[i].Memory {
				t.Errorf("peak %d at step %v", j.verdicts[0].Peak, steps[i])
			}
		}
	}
}

// Layers in groups never promise what the chain cannot keep: rotor discards what is slower.
func TestGroupedIsABound(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	promises := 0
	for i := range 300 {
		k, err := newCosts(randomChain(rng, 2+rng.IntN(7), i%2 == 1))
		if err != nil {
			t.Fatal(err)
		}
		grouped := newPersistent(k.grouped(2+rng.IntN(3)), 1<<40, infinite)
		whole := newPersistent(k, 1<<40, infinite)
		for _, p := range []*persistent{grouped, whole} {
			if err := p.solve(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range grouped.root() {
			promises++
			if got, ok := whole.root().at(s.bytes); !ok || got > s.ticks {
				t.Errorf("chain %d: groups promise %v, the chain has %d (%v)", i, s, got, ok)
			}
		}
	}
	if promises < 500 {
		t.Errorf("only %d promises", promises)
	}
}

// Thesis, sequence 2.2: revolve puts F^all before each backward, and nowhere else.
func TestRevolveIsPlain(t *testing.T) {
	t.Parallel()
	c := deepChain(12)
	f, err := Revolve(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Breakpoints() {
		seq, err := f.Sequence(s.Memory)
		if err != nil {
			t.Fatal(err)
		}
		for i, op := range seq {
			if op.Kind == schedule.ForwardAll && seq[i+1] != (schedule.Op{Kind: schedule.Backward, Layer: op.Layer}) {
				t.Errorf("%v is not followed by its backward in %v", op, seq)
			}
		}
	}
}

// Periodic, by hand: 5 layers and the loss in 2 segments of 2 layers and the rest.
func TestPeriodicByHand(t *testing.T) {
	t.Parallel()
	seq, err := Periodic(deepChain(6), 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := seq.String(), "Fck1 F2 Fall3 Fall4 Fall5 Fall6 B6 B5 B4 B3 Fall1 Fall2 B2 B1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Times need not be whole nanoseconds nor of ordinary size.
func TestTimesOfAllSizes(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{1.0 / 3, math.Pi * 1e-12, 1e-300, 1e-313, 1e300, 12345.678} {
		c := deepChain(14)
		for i := range c.Layers {
			c.Layers[i].ForwardS *= scale
			c.Layers[i].BackwardS *= scale
		}
		f, err := Exact(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := Exact(context.Background(), deepChain(14))
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Breakpoints()) < len(reference.Breakpoints()) {
			t.Errorf("scale %v: %d steps, unscaled %d", scale, len(f.Breakpoints()), len(reference.Breakpoints()))
		}
		for _, s := range f.Breakpoints() {
			(&judge{t: t}).expectStep(f, c, s)
		}
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	good := deepChain(6)
	negative := deepChain(6)
	negative.Layers[2].OutputBytes = -1
	for _, k := range []struct {
		name    string
		problem strategy.Problem
		want    error
		says    string
	}{
		{"periodic", strategy.Problem{Chain: good, Options: strategy.Options{Segments: 6}}, ErrOptions, "1 to 5"},
		{"periodic", strategy.Problem{Chain: good, Options: strategy.Options{Segments: -1}}, ErrOptions, "-1 segments"},
		{"rotor", strategy.Problem{Chain: good, Options: strategy.Options{Slots: -5}}, ErrOptions, "-5 slots"},
		{"rotor", strategy.Problem{Chain: good, Options: strategy.Options{Slots: 3}}, ErrOptions, "too few at any limit"},
		{"rotor", strategy.Problem{Chain: deepChain(100), Memory: 1 << 30, Options: strategy.Options{Slots: 1 << 20}}, ErrTooLarge, "fewer slots"},
		{"rotor", strategy.Problem{Chain: deepChain(MaxLayers + 1)}, ErrTooLarge, "4097 layers"},
		{"rotor-exact", strategy.Problem{Chain: deepChain(MaxLayers + 1)}, ErrTooLarge, "group layers"},
		{"rotor-floating", strategy.Problem{Chain: deepChain(maxFloating + 1)}, ErrTooLarge, "group layers"},
	} {
		_, err := named(t, k.name).Solve(context.Background(), k.problem)
		if !errors.Is(err, k.want) || !strings.Contains(err.Error(), k.says) {
			t.Errorf("%s: %v, want %v that says %q", k.name, err, k.want, k.says)
		}
	}
	for _, s := range always() {
		for _, c := range []*chain.Chain{negative, {}} {
			for _, segments := range []int{0, 1} {
				p := strategy.Problem{Chain: c, Memory: 1 << 40, Options: strategy.Options{Segments: segments}}
				if _, err := s.Solve(context.Background(), p); !errors.Is(err, chain.ErrFormat) {
					t.Errorf("%s with a bad chain: %v", s.Name, err)
				}
			}
		}
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := deepChain(30)
	for _, name := range []string{"revolve", "rotor", "rotor-exact", "rotor-floating", "dtr"} {
		p := strategy.Problem{Chain: c, Memory: storeAllPeak(t, c)}
		if _, err := named(t, name).Solve(ctx, p); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rounding up to slots: ceil(size·slots/memory) without overflow.
func TestSlotsOf(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		size, memory int64
		slots        int
		want         int64
	}{
		{0, 0, 500, 0}, {1, 0, 500, 501}, {1, -7, 500, 501}, {1, 1 << 62, 500, 1}, {100, 100, 500, 500},
		{101, 100, 500, 501}, {1, 500, 500, 1}, {2, 500, 500, 2}, {2, 501, 500, 2}, {501, 1000, 500, 251},
		{chain.MaxBytes, chain.MaxBytes, maxCells, maxCells}, {chain.MaxBytes - 1, chain.MaxBytes, maxCells, maxCells},
	} {
		if got := slotsOf(k.size, k.memory, k.slots); got != k.want {
			t.Errorf("slotsOf(%d, %d, %d) = %d, want %d", k.size, k.memory, k.slots, got, k.want)
		}
	}
}
