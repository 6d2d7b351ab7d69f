package pipeline_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// TestCheckOfOneDevice: for a plan on one device, Check and Simulate give the results of schedule.Simulate. Plans have transfers over links
// of both kinds, contention and a host limit. The timeline has its two parts.
func TestCheckOfOneDevice(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	transfers, checked := 0, 0
	for range 40 {
		c := plantest.Chain(rng, 2+rng.IntN(6))
		c.Bandwidth, c.CopiesBeside = 2, &chain.CopiesBeside{1.25, 1.5}
		all, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"store-all", "rotor-exact", "offload-greedy", "pofo"} {
			s, err := planner.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			p := strategy.Problem{Chain: c, Memory: all.Peak * (6 + rng.Int64N(5)) / 10, Link: schedule.Link{Bandwidth: 1 + rng.Float64(), Duplex: rng.IntN(2) == 0}}
			plan, err := s.Solve(t.Context(), p.Request())
			if errors.Is(err, pipeline.ErrInfeasible) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := schedule.Simulate(c, plan.Sequence(), p.Limits())
			report, failed := pipeline.Check(c, plan.Platform, plan)
			o, failure := pipeline.Simulate(c, plan.Platform, plan, pipeline.Noise{})
			if err = errors.Join(err, failed, failure); err != nil {
				t.Fatal(err)
			}
			if report.Makespan != want.Makespan || !slices.Equal(report.PerDevicePeak, []int64{want.Peak}) || len(report.Warnings) > 0 ||
				!slices.Equal(report.Sequence.Start, want.Start) || o.Makespan != want.Makespan || o.PerDevicePeak[0] != want.Peak {
				t.Errorf("%s: %+v and %+v, want %+v", name, report, o, want)
			}
			spans, err := pipeline.Planned(c, plan.Platform, plan, 1)
			if err != nil || len(spans) != 2 || spans[0].End != plan.Tasks[1].Start || spans[1].Start != spans[0].End || math.Abs(spans[1].End-want.Makespan) > 1e-9*want.Makespan {
				t.Errorf("%s: %v, %+v, the step takes %v", name, err, spans, want.Makespan)
			}
			if bytes, _ := schedule.HostBytes(c, plan.Sequence()); bytes > 0 {
				transfers++
				less := *plan.Platform
				less.HostMemory = bytes - 1
				if _, err := pipeline.Check(c, &less, plan); bytes > 1 && !errors.As(err, new(*schedule.HostMemoryError)) {
					t.Errorf("%s with %d bytes of host memory: %v", name, bytes-1, err)
				}
			}
			if _, err := pipeline.Check(c, plan.Platform.WithMemory(want.Peak/2), plan); !errors.As(err, new(*schedule.MemoryError)) {
				t.Errorf("%s in %d bytes: %v", name, want.Peak/2, err)
			}
			checked++
		}
	}
	if checked < 60 || transfers < 10 {
		t.Errorf("%d plans, %d with transfers", checked, transfers)
	}
}

// TestNoiseOnOneDevice: without transfers a step with noise takes as long as its ops do, each with a factor of its own.
func TestNoiseOnOneDevice(t *testing.T) {
	t.Parallel()
	p, err := pipeline.PlanSequence(smallChain(), "by hand", schedule.Sequence{
		{Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.ForwardAll, Layer: 2}, {Kind: schedule.Backward, Layer: 2}, {Kind: schedule.Backward, Layer: 1},
	}, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[float64]bool{}
	for seed := range uint64(20) {
		o, err := pipeline.Simulate(smallChain(), p.Platform, p, pipeline.Noise{Fraction: 0.1, Seed: seed})
		if err != nil || o.Makespan < 0.9*p.Predicted.Makespan || o.Makespan > 1.1*p.Predicted.Makespan || o.PerDevicePeak[0] != p.Peak() {
			t.Fatalf("%+v, %v", o, err)
		}
		seen[o.Makespan] = true
	}
	if len(seen) < 19 {
		t.Errorf("%d different runs of 20", len(seen))
	}
}

// TestBranchesOnOneDevice: a plan for one device may be one of branches that meet, which no plan for several is.
func TestBranchesOnOneDevice(t *testing.T) {
	t.Parallel()
	layer := chain.Layer{ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1}
	c := &chain.Chain{Name: "join", Layers: []chain.Layer{layer, layer, layer}, Branches: []int{1, 1}}
	s := planner.Joins()[0]
	plan, err := s.Solve(t.Context(), strategy.Problem{Chain: c, Memory: 100}.Request())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := pipeline.Check(c, plan.Platform, plan); err != nil || r.Makespan != plan.Predicted.Makespan {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, 100, 1)}); !errors.Is(err, strategy.ErrDevices) {
		t.Errorf("two devices: %v", err)
	}
	plan.WeightCopies = nil
	if _, err := pipeline.Check(c, plan.Platform, plan); !errors.Is(err, pipeline.ErrBranches) {
		t.Errorf("with weights: %v", err)
	}
}
