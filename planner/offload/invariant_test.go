package offload

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

// On random chains at every limit, on one link and on a duplex one, every strategy returns a sequence that fits, not below the bounds, or a
// refusal. Strategy dynprog is never slower than greedy. With all of store-all's memory, every strategy takes store-all's time.
func TestStrategiesOnRandomChains(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	j := &judge{t: t}
	for i := range 60 {
		c := randomChain(rng, 1+rng.IntN(9))
		smallest, peak := limitsOf(t, c)
		for memory := smallest - 2; memory <= peak+1; memory++ {
			p := problem(c, memory, math.Exp2(float64(rng.IntN(6)-3)), i%3 == 0)
			checkAll(t, j, p, smallest, peak)
		}
	}
	if j.accepted < 5000 || j.refused < 500 {
		t.Errorf("only %d sequences and %d refusals", j.accepted, j.refused)
	}
	j.oracle(t, 3000)
}

func checkAll(t testing.TB, j *judge, p strategy.Problem, smallest, peak int64) {
	t.Helper()
	busy := 0.0
	for _, l := range p.Chain.Layers {
		busy += l.ForwardS + l.BackwardS
	}
	bound, _ := FractionalBound(p)
	now := map[string]float64{}
	for _, s := range Strategies() {
		got := j.makespan(s.Name, p)
		now[s.Name] = got
		if math.IsNaN(got) != (p.Memory < smallest) && s.Name != "tflms" {
			t.Fatalf("%s at %d gives %v, the smallest limit is %d: %+v", s.Name, p.Memory, got, smallest, p.Chain)
		}
		if got < bound*(1-1e-9) || got < busy*(1-1e-9) {
			t.Fatalf("%s at %d: %v is below the bound %v: %+v", s.Name, p.Memory, got, bound, p.Chain)
		}
		if p.Memory >= peak && got != busy {
			t.Fatalf("%s at %d takes %v, store-all %v: %+v", s.Name, p.Memory, got, busy, p.Chain)
		}
	}
	if now["offload-dynprog"] > now["offload-greedy"] {
		t.Fatalf("at %d dynprog takes %v, greedy %v: %+v", p.Memory, now["offload-dynprog"], now["offload-greedy"], p.Chain)
	}
}

// A refusal names the smallest limit: there the strategy succeeds and the peak is the limit; a byte below it fails.
func TestSmallestLimit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	refused := 0
	for i := range 60 {
		c := randomChain(rng, 1+rng.IntN(8))
		smallest, _ := limitsOf(t, c)
		for _, s := range Strategies() {
			for _, memory := range []int64{math.MinInt64, -1, 0, smallest - 1} {
				p := problem(c, memory, 1+float64(i%4), i%2 == 0)
				_, err := s.Solve(context.Background(), p)
				refusal, ok := errors.AsType[*pipeline.InfeasibleError](err)
				if !ok {
					if memory < smallest {
						t.Fatalf("%s at %d: %v, the smallest limit is %d", s.Name, memory, err, smallest)
					}
					continue
				}
				refused++
				expectTight(t, s, p, refusal)
			}
		}
	}
	if refused < 1000 {
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
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory, Link: p.Link})
	if err != nil {
		t.Fatal(err)
	}
	if r.Peak != p.Memory {
		t.Errorf("%s: peak %d at the smallest limit %d", s.Name, r.Peak, p.Memory)
	}
	p.Memory--
	if _, err := s.Solve(context.Background(), p); err == nil {
		t.Errorf("%s: feasible below its smallest limit %d", s.Name, refusal.Smallest)
	}
}

// The same problem gives the same sequence, whatever the number of processors and the order of map keys.
func TestDeterminism(t *testing.T) {
	// Serial: it sets the number of processors.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := deepChain(30)
	smallest, peak := limitsOf(t, c)
	for _, s := range Strategies() {
		p := problem(c, (smallest+3*peak)/4, 12e9, false)
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

func TestBadInput(t *testing.T) {
	t.Parallel()
	good := deepChain(6)
	negative := deepChain(6)
	negative.Layers[2].OutputBytes = -1
	for _, s := range Strategies() {
		for _, b := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, memory := range []int64{0, 1 << 50} {
				_, err := s.Solve(context.Background(), problem(good, memory, b, false))
				if !errors.Is(err, ErrLink) || !strings.Contains(err.Error(), "--bandwidth 12GB/s") {
					t.Errorf("%s with a bandwidth of %v: %v", s.Name, b, err)
				}
			}
		}
		for _, c := range []*chain.Chain{negative, {}} {
			if _, err := s.Solve(context.Background(), problem(c, 1<<40, 1, false)); !errors.Is(err, chain.ErrFormat) {
				t.Errorf("%s with a bad chain: %v", s.Name, err)
			}
		}
	}
	for _, slots := range []int{-1, maxCells + 1} {
		p := problem(good, 1<<30, 1, false)
		p.Slots = slots
		if _, err := named(t, "offload-dynprog").Solve(context.Background(), p); !errors.Is(err, ErrOptions) {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
	if _, err := LowerBound(problem(good, 1, 0, false)); !errors.Is(err, ErrLink) {
		t.Errorf("LowerBound without a link: %v", err)
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := deepChain(30)
	smallest, _ := limitsOf(t, c)
	for _, name := range []string{"tflms", "vdnn", "autoswap", "offload-dynprog"} {
		if _, err := named(t, name).Solve(ctx, problem(c, smallest, 1e9, false)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Links and times of any size: a plan, or the makespan is no number.
func TestSizesOfAllMagnitudes(t *testing.T) {
	t.Parallel()
	c := deepChain(8)
	smallest, peak := limitsOf(t, c)
	j := &judge{t: t}
	for _, bandwidth := range []float64{1e-290, 1e-100, 1e-9, 1e30, 1e200, 1e308} {
		for _, s := range Strategies() {
			if s.Name != "tflms" {
				j.makespan(s.Name, problem(c, (smallest+peak)/2, bandwidth, false))
			}
		}
	}
	c.Layers[3].ForwardS = 1e300
	for _, s := range Strategies() {
		j.makespan(s.Name, problem(c, peak-1, 1e308, true))
		if _, err := s.Solve(context.Background(), problem(c, peak-1, 1e-308, false)); !errors.Is(err, schedule.ErrEndless) && s.Name != "tflms" {
			t.Errorf("%s with 1e-308 bytes/s: %v", s.Name, err)
		}
	}
}

// FuzzStrategies gives every strategy any small chain under any limit, with any link.
func FuzzStrategies(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, int(seed%12), int64(20+3*seed), 0.25*float64(1+seed%9), seed%2 == 0)
	}
	f.Add(uint64(1), 3, int64(math.MaxInt64), 1e300, true)
	f.Add(uint64(1), 3, int64(math.MinInt64), 1e-200, false)
	f.Fuzz(func(t *testing.T, seed uint64, layers int, memory int64, bandwidth float64, duplex bool) {
		if layers < 0 || layers > 12 || bandwidth > 0 && bandwidth < 1e-250 {
			return // a link so slow that no makespan is a number: TestSizesOfAllMagnitudes
		}
		c := randomChain(rand.New(rand.NewPCG(seed, 0)), 1+layers)
		p := problem(c, memory, bandwidth, duplex)
		if err := checkLink(p.Link); err != nil {
			for _, s := range Strategies() {
				if _, got := s.Solve(context.Background(), p); !errors.Is(got, ErrLink) {
					t.Fatalf("%s with %v bytes/s: %v", s.Name, bandwidth, got)
				}
			}
			return
		}
		smallest, peak := limitsOf(t, c)
		checkAll(t, &judge{t: t}, p, smallest, peak)
	})
}
