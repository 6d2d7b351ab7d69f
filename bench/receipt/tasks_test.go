package receipt

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
)

// tasks is a step along 1F1B of three microbatches on two devices, whose tasks take their costs; 5 ms of messages and waits come behind.
func tasks(t *testing.T) Tasks {
	t.Helper()
	c := &chain.Chain{Name: "four"}
	for _, name := range []string{"a", "b", "c", "loss"} {
		c.Layers = append(c.Layers, chain.Layer{Name: name, ForwardS: 0.002, BackwardS: 0.004, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1, Update: chain.Update{DeviceS: 0.001}})
	}
	p := &pipeline.Platform{Devices: 2, Memory: []int64{pipeline.NoLimit, pipeline.NoLimit}, Bandwidth: 1e9}
	for _, s := range flush.Strategies() {
		if s.Name != "1f1b-flush" {
			continue
		}
		plan, err := s.Solve(context.Background(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Microbatches: 3}})
		if err != nil {
			t.Fatal(err)
		}
		x := Tasks{Chain: c, Platform: p, Plan: plan, Took: map[int]float64{}, Updates: 0.004}
		x.Predicted = plan.Predicted.Makespan + pipeline.UpdateSeconds(c, p, plan)
		x.Measured = plan.Predicted.Makespan + 0.009
		spans, err := pipeline.Planned(c, p, plan, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spans {
			if !plan.Tasks[s.Task].Kind.Communication() {
				x.Took[s.Task] = s.End - s.Start
			}
		}
		return x
	}
	t.Fatal("no 1f1b-flush")
	return Tasks{}
}

// slow returns the receipt of a step in which a task took longer.
func slow(t *testing.T, kind pipeline.Kind, stage, microbatch int, by float64) *Receipt {
	t.Helper()
	x := tasks(t)
	for i, task := range x.Plan.Tasks {
		if task.Kind == kind && task.Stage == stage && task.Shift == microbatch {
			x.Took[i] += by
		}
	}
	return receiptOf(t, x)
}

func receiptOf(t *testing.T, x Tasks) *Receipt {
	t.Helper()
	r, err := NewTasks(x)
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for c, d := range r.By {
		if sum += d; d != 0 && !r.Has(Cause(c)) {
			t.Errorf("%v of %v are shown nowhere", d, Cause(c))
		}
	}
	if sum != r.Gap() {
		t.Errorf("causes come to %v of %v", sum, r.Gap())
	}
	return r
}

// A slow task costs what the step is longer by for it: all of it where every other one waits, nothing where its device would have waited anyway.
func TestSlowTasksCostWhatOthersWaitForThem(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		kind              pipeline.Kind
		stage, microbatch int
		by                float64
		ops               time.Duration
	}{
		{pipeline.F, 0, 0, 0, 0},
		{pipeline.F, 0, 0, 0.003, ms(3)},   // the first task
		{pipeline.B, 0, 2, 0.003, ms(3)},   // the last one
		{pipeline.B, 1, 0, -0.001, ms(-1)}, // faster, on the device without waits
		{pipeline.F, 0, 1, 0.001, 0},       // device 0 would have waited for the first gradient
	} {
		r := slow(t, x.kind, x.stage, x.microbatch, x.by)
		if d := r.By[Ops] - x.ops; d.Abs() > time.Microsecond || r.By[Update] != ms(2) || (r.By[Messages]-ms(5)+r.By[Ops]).Abs() > time.Microsecond {
			t.Errorf("%v%d(%d) by %v s: ops %v, want %v; updates %v, messages %v", x.kind, x.stage, x.microbatch, x.by, r.By[Ops], x.ops, r.By[Update], r.By[Messages])
		}
		if w := r.Worst[0]; x.by != 0 && (w.Gap-signedDuration(x.by)).Abs() > time.Microsecond {
			t.Errorf("the worst op is %v, want %v%d(%d) by %v s", w, x.kind, x.stage, x.microbatch, x.by)
		}
	}
}

// Whatever tasks took, the causes add up to the gap.
func TestCausesOfTasksAddUp(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 50 {
		x := tasks(t)
		for i := range x.Took {
			x.Took[i] *= 0.5 + rnd.Float64()
		}
		x.Measured = rnd.Float64()
		receiptOf(t, x)
	}
}
