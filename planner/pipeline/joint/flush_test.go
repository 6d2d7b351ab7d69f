package joint

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
)

// apart is data parallelism with a flush, by hand: a stage on all devices, which take microbatches in turn and keep everything.
func apart(_ context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	p, k := r.Platform.Devices, pipeline.NewCosts(r.Chain)
	n := k.Len()
	plan := &pipeline.Plan{Versions: pipeline.Flush, Microbatches: r.Microbatches, Copies: pipeline.Copies{Accounting: r.Accounting},
		Stages: []pipeline.Stage{{First: 1, Last: n, Devices: group{count: p}.devices()}}}
	for m := range r.Microbatches {
		start := float64(m/p) * k.U(1, n)
		plan.Tasks = append(plan.Tasks,
			pipeline.Task{Kind: pipeline.F, Device: m % p, Shift: m, Start: start}, pipeline.Task{Kind: pipeline.B, Device: m % p, Shift: m, Start: start + k.Forward(1, n)})
	}
	return pipeline.Finish("apart", r, plan)
}

// TestFlushNeverSlower: no schedule with a flush of those that most people mean is faster, nor fits where it does not; the memory that it
// names where nothing fits works.
// Only this test finds a plan of joint-flush that is slower than 1f1b-flush, gpipe or data parallelism.
func TestFlushNeverSlower(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 5))
	both, faster, alone, replicated, recompute, limits := 0, 0, 0, 0, 0, 0
	for range 400 {
		r := request(rng, 6, 6)
		r.Versions, r.Microbatches = "", r.Platform.Devices*(1+rng.IntN(3))
		mine, err := solveFlush(t.Context(), r)
		var small *pipeline.InfeasibleError
		switch {
		case errors.As(err, &small):
			r.Platform = r.Platform.WithMemory(small.Smallest)
			if _, err := solveFlush(t.Context(), r); err != nil {
				t.Errorf("with the smallest memory, %d: %v", small.Smallest, err)
			}
			limits++
			continue
		case err != nil:
			t.Fatal(err)
		}
		if mine.HasOps() {
			recompute++
		}
		for _, st := range mine.Stages {
			replicated += min(1, len(st.Devices)-1)
		}
		for name, rival := range map[string]solver{"1f1b-flush": scheduled(t, "1f1b-flush"), "gpipe-checkpoint": scheduled(t, "gpipe-checkpoint"), "gpipe": scheduled(t, "gpipe"), "data parallelism": apart} {
			plan, err := rival(t.Context(), r)
			if err != nil {
				alone++
				continue
			}
			x, y := mine.SecondsPerMinibatch(), plan.SecondsPerMinibatch()
			if both++; x > y*(1+1e-9) {
				t.Errorf("%v s a microbatch, %s has %v: %+v", x, name, y, mine.Stages)
			}
			if x < y*(1-1e-9) {
				faster++
			}
		}
	}
	t.Logf("%d pairs, faster in %d, alone in %d; %d stages with replicas, %d plans that recompute, %d limits", both, faster, alone, replicated, recompute, limits)
	if both < 300 || faster < 200 || alone < 100 || replicated < 100 || recompute < 30 || limits < 30 {
		t.Error("too few of something")
	}
}

// scheduled returns the solver of a schedule with a flush.
func scheduled(t *testing.T, name string) solver {
	t.Helper()
	all := named(flush.Strategies(), name)
	if len(all) != 1 {
		t.Fatalf("%d schedules are named %s", len(all), name)
	}
	return all[0].Solve
}

// TestSharedSequencesFindTheSamePlans: parts that share their sequences have the plans that each has with sequences of its own.
// Only this test finds sequences that are taken for those of another chain or limit.
func TestSharedSequencesFindTheSamePlans(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 6))
	plans := 0
	for range 150 {
		r := request(rng, 14, 6)
		r.Versions, r.Microbatches = "", r.Platform.Devices*(1+rng.IntN(3))
		var all pick
		all.request = r
		for _, s := range flushParts[1:] {
			plan, err := s.Solve(t.Context(), r)
			if err := all.add(plan, err); err != nil {
				t.Fatal(err)
			}
		}
		for copies := 2; copies <= r.Platform.Devices; copies++ {
			for _, places := range layouts(r, copies) {
				plan, err := copied(t.Context(), r, places, whole)
				if err := all.add(plan, err); err != nil {
					t.Fatal(err)
				}
			}
		}
		shared, err := solveFlush(t.Context(), r)
		if (err == nil) != (all.plan != nil) {
			t.Errorf("shared: %v; apart: %v", err, all.plan)
			continue
		}
		if err != nil {
			continue
		}
		if plans++; math.Abs(shared.Predicted.Makespan-all.plan.Predicted.Makespan) > 1e-9*all.plan.Predicted.Makespan {
			t.Errorf("%d layers on %d devices: shared %g s, apart %g s", r.Chain.Len(), r.Platform.Devices, shared.Predicted.Makespan, all.plan.Predicted.Makespan)
		}
	}
	if plans < 50 {
		t.Errorf("only %d plans", plans)
	}
}
