package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// request returns a random request without stages.
func request(rng *rand.Rand) pipeline.Request {
	r := pipeline.Request{Chain: pipelinetest.Chain(rng, 1+rng.IntN(7), rng.IntN(2) == 0), Platform: pipelinetest.Platform(rng, 1+rng.IntN(4))}
	r.Versions = []pipeline.Versions{"", pipeline.Latest, pipeline.Stash, pipeline.VerticalSync}[rng.IntN(4)]
	if r.Versions == pipeline.VerticalSync {
		r.WeightCopies = []float64{2.5}
	}
	r.Accounting = []pipeline.Accounting{"", pipeline.Saved}[rng.IntN(2)]
	switch rng.IntN(4) {
	case 0:
	case 1:
		for d := range r.Platform.Memory {
			r.Platform.Memory[d] = rng.Int64N(200)
		}
	default:
		r.Platform = r.Platform.WithMemory(rng.Int64N(100))
	}
	if r.Platform.Devices == 4 && rng.IntN(2) == 0 && r.Platform.Pairs == nil {
		r.Platform.Levels = []pipeline.Level{{Devices: 2, Bandwidth: 9}, {Devices: 2, Bandwidth: 2}}
	}
	return r
}

// Every plan of every strategy passes both checkers; every refusal names the smallest memory: it works there, and with one
// byte less it does not.
func TestPlansOfAllStrategies(t *testing.T) {
	t.Parallel()
	count := 250
	if testing.Short() {
		count = 50
	}
	for i, s := range Strategies() {
		t.Run(s.Name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(i), 11))
			var cases []pipelinetest.Case
			refused := 0
			for range count {
				r := request(rng)
				plan, err := s.Solve(context.Background(), r)
				var small *pipeline.InfeasibleError
				if errors.As(err, &small) {
					refused++
					if r.Platform, plan = refusal(t, s, r, small); plan == nil {
						continue
					}
				} else if err != nil {
					t.Fatal(err)
				}
				cases = append(cases, pipelinetest.Case{Chain: r.Chain, Platform: r.Platform, Plan: plan})
			}
			if refused < count/10 || refused > count*9/10 || len(cases) < count*9/10 {
				t.Fatalf("%d plans of %d, %d refused", len(cases), count, refused)
			}
			pipelinetest.Accept(t, cases)
		})
	}
}

// refusal tries the memory that a refusal names, and one byte less. It returns the plan at that memory.
func refusal(t *testing.T, s pipeline.Strategy, r pipeline.Request, e *pipeline.InfeasibleError) (*pipeline.Platform, *pipeline.Plan) {
	t.Helper()
	at := r
	at.Platform = r.Platform.WithMemory(e.Smallest)
	plan, err := s.Solve(context.Background(), at)
	if err != nil {
		t.Errorf("%s: refused with %v, and at that memory: %v", s.Name, e, err)
		return nil, nil
	}
	less := r
	less.Platform = r.Platform.WithMemory(max(e.Smallest-1, 0))
	if _, err := s.Solve(context.Background(), less); e.Smallest == 0 || !errors.Is(err, pipeline.ErrInfeasible) {
		t.Errorf("%s: refused with %v, but with one byte less: %v", s.Name, e, err)
	}
	if e.Devices > 0 {
		r.Platform = pipeline.NewPlatform(e.Devices, r.Platform.Memory[0], r.Platform.Bandwidth)
		r.Platform.NoBuffers = at.Platform.NoBuffers
		if _, err := s.Solve(context.Background(), r); err != nil {
			t.Errorf("%s: refused with %v, and with that many devices: %v", s.Name, e, err)
		}
	}
	return at.Platform, plan
}

// contiguous against all ways to give consecutive layers to devices in their order, on platforms that are not uniform.
func TestContiguousOnMixedPlatforms(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 5))
	mixed := 0
	for range 150 {
		r := request(rng)
		if r.Platform.Uniform() {
			continue
		}
		want, feasible := bruteContiguous(r)
		plan, err := solve("contiguous", r)
		if !feasible {
			if !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("%v, %v, but nothing fits", plan, err)
			}
			continue
		}
		mixed++
		if err != nil || !near(plan.Period, want) {
			t.Errorf("%v, %v; want %v", plan, err, want)
		}
	}
	if mixed < 40 {
		t.Fatalf("%d cases", mixed)
	}
}

// bruteContiguous tries all partitions on all ordered choices of devices.
func bruteContiguous(r pipeline.Request) (best float64, ok bool) {
	var try func(first, device int)
	try = func(first, device int) {
		if first > r.Chain.Len() {
			plan, err := star(r)
			if err == nil && (!ok || plan.Period < best) {
				best, ok = plan.Period, true
			}
			return
		}
		for d := device; d < r.Platform.Devices; d++ {
			for last := first; last <= r.Chain.Len(); last++ {
				r.Stages = append(r.Stages, pipeline.Stage{First: first, Last: last, Devices: []int{d}})
				try(last+1, d+1)
				r.Stages = r.Stages[:len(r.Stages)-1]
			}
		}
	}
	try(1, 0)
	return best, ok
}

// The sums of blocks differ by at most the largest number, and together they are all numbers.
func TestBlocks(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	for range 5000 {
		n := 1 + rng.IntN(12)
		k := 1 + rng.IntN(n)
		numbers, largest := make([]float64, n), 0.0
		for i := range numbers {
			numbers[i] = []float64{float64(rng.IntN(5)), rng.Float64(), 0}[rng.IntN(3)]
			largest = max(largest, numbers[i])
		}
		ends := blocks(numbers, k)
		low, high, from := 1e300, 0.0, 0
		for _, to := range ends {
			if to < from {
				t.Fatalf("%v: %v", numbers, ends)
			}
			s := 0.0
			for _, x := range numbers[from:to] {
				s += x
			}
			low, high, from = min(low, s), max(high, s), to
		}
		if from != n || high-low > largest*(1+1e-9) {
			t.Fatalf("%v in %d: %v, sums from %v to %v", numbers, k, ends, low, high)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "3", Layers: []chain.Layer{{Name: "a", ForwardS: 1}, {Name: "b", ForwardS: 1, WeightBytes: 50}, {Name: "c", ForwardS: 1}}}
	for _, s := range Strategies() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, 100, 1)}
		if _, err := s.Solve(ctx, r); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", s.Name, err)
		}
		r.Platform = &pipeline.Platform{}
		if _, err := s.Solve(context.Background(), r); !errors.Is(err, pipeline.ErrPlatform) {
			t.Errorf("%s, no platform: %v", s.Name, err)
		}
		r.Platform = pipeline.NewPlatform(2, 100, 1)
		if _, err := s.Solve(context.Background(), r); err == nil || !errors.Is(err, pipeline.ErrInfeasible) {
			t.Errorf("%s: %v", s.Name, err)
		}
		idle := &chain.Chain{Name: "idle", Layers: []chain.Layer{{Name: "1"}, {Name: "2"}}}
		r = pipeline.Request{Chain: idle, Platform: pipeline.NewPlatform(2, 100, pipeline.Free())}
		if _, err := s.Solve(context.Background(), r); err != nil {
			t.Errorf("%s, nothing to do: %v", s.Name, err)
		}
	}
}

func FuzzPlans(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(99))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := request(rand.New(rand.NewPCG(seed, 3)))
		for _, s := range Strategies() {
			plan, err := s.Solve(context.Background(), r)
			var small *pipeline.InfeasibleError
			if errors.As(err, &small) {
				refusal(t, s, r, small)
			} else if err != nil {
				t.Errorf("%s: %v", s.Name, err)
			} else if _, err := pipeline.Check(r.Chain, r.Platform, plan); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	})
}
