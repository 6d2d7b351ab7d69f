package periodic

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/recompute"
	"plimsoll/planner/schedule"
)

// recomputing gives some stages of a request ops of their own.
func recomputing(rng *rand.Rand, r *pipeline.Request) {
	r.Accounting = pipeline.Saved
	seqs := recompute.New(pipeline.NewCosts(r.Chain), 1<<50)
	for s := range r.Stages {
		st := &r.Stages[s]
		if g := 1 + rng.IntN(3); rng.IntN(3) > 0 {
			st.Ops = seqs.Ops(st.First, st.Last, g, rng.IntN(len(seqs.Ways(st.First, st.Last, g))))
		}
	}
}

// If links have room for the gradients of replicas, stages with ops, on one device or several, get the smallest period that the judge finds
// to fit. The candidates are all periods at which anything changes.
func TestPeriodOfStagesWithOps(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 12))
	fit, squeezed, replicated := 0, 0, 0
	for range 1000 {
		r := request(rng, true, false)
		recomputing(rng, &r)
		free := r
		free.Platform = r.Platform.WithMemory(pipeline.NoLimit)
		loose, err := solve("1f1b*", free)
		if err != nil {
			t.Fatal(err)
		}
		r.Platform = r.Platform.WithMemory(int64((0.6 + 0.5*rng.Float64()) * float64(slices.Max(loose.PerDevicePeak))))
		plan, err := solve("1f1b*", r)
		if err != nil && !errors.Is(err, pipeline.ErrInfeasible) {
			t.Fatal(err)
		}
		var want *pipeline.Plan
		room := false
		p, _ := newProblem("test", r)
		q := newPipe(p)
		for _, period := range q.periods() {
			if all, ok := q.passages(period, demand{}); ok {
				plan := q.plan(period, all, 0)
				synchronized, err := pipeline.Synchronize(r.Chain, r.Platform, plan)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := pipeline.Check(r.Chain, r.Platform, synchronized); err == nil {
					want, room = synchronized, synchronized.Period == plan.Period
					break
				}
			}
		}
		switch {
		case (err == nil) != (want != nil):
			t.Fatalf("%v, by the judge the shortest period is that of %v", err, want)
		case err == nil && room && plan.Period != want.Period:
			t.Fatalf("a period of %v, by the judge it is %v", plan.SecondsPerMinibatch(), want.SecondsPerMinibatch())
		case err == nil:
			fit++
			if plan.SecondsPerMinibatch() > loose.SecondsPerMinibatch()*(1+1e-9) {
				squeezed++
			}
			if q.repeats > 1 {
				replicated++
			}
		}
	}
	if fit < 200 || squeezed < 70 || replicated < 140 {
		t.Errorf("%d fit, %d of them with a longer period, %d with replicas", fit, squeezed, replicated)
	}
}

// Some schedules take no ops, and none takes transfers.
func TestRefusedOps(t *testing.T) {
	t.Parallel()
	r := replicas(1, 1)
	seqs := recompute.New(pipeline.NewCosts(r.Chain), 1<<50)
	r.Stages[0].Ops = seqs.Ops(1, 1, 1, 0)
	for name, want := range map[string]string{"list": "has ops of its own", "eager": "has ops of its own", "milp": "has ops of its own", "1f1b*": "", "1f1b": "", "k-periodic": ""} {
		if _, err := solve(name, r); (err == nil) != (want == "") || err != nil && (!errors.Is(err, ErrStages) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	for want, ops := range map[string]schedule.Sequence{
		"stage 0: bad ops":                        r.Stages[0].Ops[:1],
		"stage 0 offloads; 1f1b* schedules stage": {{Kind: schedule.Offload, Layer: 1}, {Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.Prefetch, Layer: 1}, {Kind: schedule.Backward, Layer: 1}},
	} {
		r.Stages[0].Ops = ops
		if _, err := solve("1f1b*", r); !errors.Is(err, ErrStages) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
