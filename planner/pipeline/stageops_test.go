package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// two returns a chain of two layers on two devices, and a plan of two microbatches. Each layer has a forward of 1 s, a backward of 2 s and
// sizes of 1 byte each. The link takes 1 s for a byte:
//
//	seconds   0  1  2  3  4  5  6  7  8  9  10 11
//	device 0  F0 F1 .  .  .  .  .  B1 B1 R0 B0 B0
//	link      .  >0 >1 .  .  .  <1 .  .  <0 .  .
//	device 1  .  .  F0 F1 B1 B1 R0 B0 B0 .  .  .
//
// Every stage keeps its input and recomputes (R), but for the last microbatch. Device 0 recomputes while the gradient is on
// its way.
func two() problem {
	layer := chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1}
	c := &chain.Chain{Name: "two", InputBytes: 1, Layers: []chain.Layer{layer, layer}}
	plan := &pipeline.Plan{Chain: "two", Versions: pipeline.Flush, Microbatches: 2}
	for s := range 2 {
		l := s + 1
		all := schedule.Sequence{{Kind: schedule.ForwardAll, Layer: l}, {Kind: schedule.Backward, Layer: l}}
		plan.Stages = append(plan.Stages, pipeline.Stage{First: l, Last: l, Devices: []int{s}, LastOps: all,
			Ops: append(schedule.Sequence{{Kind: schedule.ForwardCheckpoint, Layer: l}}, all...)})
	}
	for _, t := range []struct {
		kind  pipeline.Kind
		stage int
		micro int
		start float64
	}{
		{pipeline.F, 0, 0, 0}, {pipeline.F, 0, 1, 1}, {pipeline.CF, 0, 0, 1}, {pipeline.CF, 0, 1, 2},
		{pipeline.F, 1, 0, 2}, {pipeline.F, 1, 1, 3}, {pipeline.B, 1, 1, 4}, {pipeline.B, 1, 0, 6},
		{pipeline.CB, 0, 1, 6}, {pipeline.CB, 0, 0, 9}, {pipeline.B, 0, 1, 7}, {pipeline.B, 0, 0, 9},
	} {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: t.kind, Stage: t.stage, Device: t.stage, Start: t.start, Shift: t.micro})
	}
	return problem{c, pipeline.NewPlatform(2, pipeline.NoLimit, 1), plan}
}

// at returns the task of a plan.
func (x *problem) at(kind pipeline.Kind, stage, micro int) *pipeline.Task {
	i := slices.IndexFunc(x.plan.Tasks, func(t pipeline.Task) bool { return t.Kind == kind && t.Stage == stage && t.Shift == micro })
	return &x.plan.Tasks[i]
}

func seconds64(x float64) *float64 { return &x }

// TestTheExample: what the checker finds about the plan that is drawn above.
func TestTheExample(t *testing.T) {
	t.Parallel()
	x := two()
	r, err := pipeline.Check(x.c, x.p, x.plan)
	if err != nil {
		t.Fatal(err)
	}
	// Buffers of 2 bytes each. Device 0 at B1: the input of microbatch 0, and of 1 its input, a_1, δ_1 and δ_0. Device 1 has no
	// gradient from behind.
	if r.Makespan != 12 || !slices.Equal(r.PerDevicePeak, []int64{2 + 1 + 4, 2 + 1 + 3}) || !slices.Equal(r.PerDeviceBusy, []float64{7, 7}) {
		t.Errorf("%+v", r)
	}
	// Said durations are those of the ops.
	for _, task := range []struct {
		kind  pipeline.Kind
		micro int
		takes float64
	}{{pipeline.F, 0, 1}, {pipeline.F, 1, 1}, {pipeline.B, 0, 3}, {pipeline.B, 1, 2}} {
		x.at(task.kind, 0, task.micro).Duration = seconds64(task.takes)
	}
	x.plan.PerDevicePeak = []int64{7, 6}
	if r, err := pipeline.Check(x.c, x.p, x.plan); err != nil || r.Warnings != nil {
		t.Errorf("%+v, %v", r, err)
	}
	x.plan.PerDevicePeak[1] = 5
	if r, err := pipeline.Check(x.c, x.p, x.plan); err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "it is [7 6]") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestTimings: what parts take, by hand: forwards of 1, 2 and 4 s, of half of that where nothing is saved, backwards of 10, 20
// and 40 s.
func TestTimings(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "three"}
	for i := range 3 {
		forward := float64(int(1) << i)
		half := forward / 2
		c.Layers = append(c.Layers, chain.Layer{ForwardS: forward, DiscardForwardS: &half, BackwardS: 10 * forward})
	}
	for ops, want := range map[string][3]float64{ // F, B, and of B before the gradient
		"Fall1 Fall2 Fall3 B3 B2 B1":                         {7, 70, 0},
		"Fck1 F2 F3 Fall1 Fall2 Fall3 B3 B2 B1":              {3.5, 77, 7},
		"Fck1 Fck2 Fall3 B3 Fall2 B2 Fall1 B1":               {5.5, 73, 0}, // nothing to do before the gradient
		"Fck1 F2 F3 Fck1 F2 Fall3 B3 Fck1 Fall2 B2 Fall1 B1": {3.5, 79, 5.5},
		"Fall1 Fck2 Fck3 Fall3 B3 Fall2 B2 B1":               {4, 76, 4},
	} {
		seq, err := schedule.Parse(ops)
		if err != nil {
			t.Fatal(err)
		}
		k, err := pipeline.MeasureStage(c, pipeline.Stage{First: 1, Last: 3}, seq)
		if err != nil {
			t.Fatalf("%s: %v", ops, err)
		}
		if got := [3]float64{k.Forward, k.Backward, k.Early}; got != want {
			t.Errorf("%s: %v, want %v", ops, got, want)
		}
	}
}

// TestPlantedViolationsOfOps: each broken rule is found, by its name.
func TestPlantedViolationsOfOps(t *testing.T) {
	t.Parallel()
	found := 0
	for says, planted := range map[string]struct {
		rule  pipeline.Rule
		plant func(x *problem)
	}{
		"B0(0) starts at 8.5 s for microbatch 0: it waits for task 9, CB0(0), which ends at 10 s": {pipeline.RuleDependency, func(x *problem) {
			x.at(pipeline.B, 0, 1).Start, x.at(pipeline.CB, 0, 1).Start = 6.5, 5.5 // makes room on device 0
			x.at(pipeline.B, 0, 0).Start = 8.5
		}},
		"B0(1) starts at 6.5 s": {pipeline.RuleDependency, func(x *problem) { x.at(pipeline.B, 0, 1).Start = 6.5 }}, // nothing to recompute
		"B1(1) starts at 3 s":   {pipeline.RuleDependency, func(x *problem) { x.at(pipeline.B, 1, 1).Start = 3 }},
		"CF0(1) starts at 1.5":  {pipeline.RuleDependency, func(x *problem) { x.at(pipeline.CF, 0, 1).Start = 1.5 }},
		"before task 6, B1(1) ends at 6 s": {pipeline.RuleResource, func(x *problem) {
			x.at(pipeline.B, 1, 0).Start = 5 // it may recompute before its gradient, which is its own, but not on a busy device
		}},
		"before task 10, B0(1) ends at 9 s": {pipeline.RuleResource, func(x *problem) { x.at(pipeline.B, 0, 0).Start = 8.9 }},
		"link 0-1: task 9, CB0(0) starts at 9 s, before task 8, CB0(1) ends at 9.5 s": {pipeline.RuleResource, func(x *problem) {
			x.at(pipeline.CB, 0, 1).Start = 8.5 // and ends in the middle of CB0(0)
			x.at(pipeline.B, 0, 1).Start, x.at(pipeline.B, 0, 0).Start = 9.5, 11.5
			x.at(pipeline.CB, 0, 0).Start = 9
		}},
		"its duration_s is 2, the chain and the platform say 3": {pipeline.RuleDuration, func(x *problem) { x.at(pipeline.B, 0, 0).Duration = seconds64(2) }},
		"its duration_s is 3, the chain and the platform say 2": {pipeline.RuleDuration, func(x *problem) { x.at(pipeline.B, 0, 1).Duration = seconds64(3) }},
		"B of stage 0 is missing for microbatch 1":              {pipeline.RuleOnce, func(x *problem) { x.plan.Tasks = slices.Delete(x.plan.Tasks, 10, 11) }},
		"no such stage":                             {pipeline.RuleTasks, func(x *problem) { x.plan.Tasks[3].Stage = 2 }},
		"device 0 needs 7 B at task 10, B0(1)":      {pipeline.RuleMemory, func(x *problem) { x.p = x.p.WithMemory(6) }},
		"device 1 needs 6 B at task 6, B1(1)":       {pipeline.RuleMemory, func(x *problem) { x.p.Memory[1] = 5 }},
		"is on device 7, the platform has 0 to 1":   {pipeline.RuleStages, func(x *problem) { x.plan.Stages[1].Devices[0] = 7 }},
		"microbatches are 0 to 1":                   {pipeline.RuleTasks, func(x *problem) { x.plan.Tasks[0].Shift = 2 }},
		"F0(1) starts at 1 s, before task 0, F0(0)": {pipeline.RuleResource, func(x *problem) { slow(x, 1.5) }},
	} {
		x := two()
		planted.plant(&x)
		_, err := pipeline.Check(x.c, x.p, x.plan)
		e, ok := errors.AsType[*pipeline.InvalidError](err)
		if !ok || !slices.ContainsFunc(e.Violations, func(v pipeline.Violation) bool { return v.Rule == planted.rule && strings.Contains(v.Reason, says) }) {
			t.Errorf("%v, want %q", err, says)
			continue
		}
		found++
	}
	if found != 16 {
		t.Errorf("%d violations found", found)
	}
	x := two() // two rules at once
	x.at(pipeline.B, 0, 1).Start, x.p = 6.5, x.p.WithMemory(6)
	_, err := pipeline.Check(x.c, x.p, x.plan)
	e, ok := errors.AsType[*pipeline.InvalidError](err)
	if !ok || e.OnlyMemory() || len(e.Violations) != 2 || e.Violations[1].Rule != pipeline.RuleMemory {
		t.Errorf("%v", err)
	}
}

// slow makes the forward that saves nothing of stage 0 longer.
func slow(x *problem, seconds float64) { x.c.Layers[0].DiscardForwardS = &seconds }

// TestRefusedOps: ops that no stage of a plan with a flush can run.
func TestRefusedOps(t *testing.T) {
	t.Parallel()
	for says, edit := range map[string]func(x *problem){
		"stage 0: bad ops of a stage: it has \"last_ops\" without \"ops\"":                      func(x *problem) { x.plan.Stages[0].Ops = nil },
		"stage 1: bad ops of a stage: op 0 (forward_checkpoint 1): the stage has layers 2 to 2": func(x *problem) { x.plan.Stages[1].Ops = x.plan.Stages[0].Ops },
		"stage 1: last_ops: bad ops of a stage: end of the sequence: δ_2 is in memory":          func(x *problem) { x.plan.Stages[1].LastOps = x.plan.Stages[1].LastOps[:1] },
		"stage 0: last_ops: bad ops of a stage: op 1 (offload 1)":                               func(x *problem) { x.plan.Stages[0].LastOps[1].Kind = schedule.Offload },
		"\"last_ops\" is for plans with a flush, \"weight_versions\" is \"st":                   func(x *problem) { x.plan.Versions, x.plan.Period = pipeline.Stash, 20 },
		"its backward cannot be split":                                                          func(x *problem) { x.plan.Tasks[0].Kind = pipeline.W },
		"stage 1 holds layers 1 to 2, it must start at layer 2":                                 func(x *problem) { x.plan.Stages[1].First = 1 },
		"the stages cover layers 1 to 1, the chain has 2":                                       func(x *problem) { x.plan.Stages = x.plan.Stages[:1] },
	} {
		x := two()
		edit(&x)
		for name, err := range map[string]error{
			"check":    second(pipeline.Check(x.c, x.p, x.plan)),
			"simulate": second(pipeline.Simulate(x.c, x.p, x.plan, pipeline.Noise{})),
		} {
			if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, pipeline.ErrOps) && !errors.Is(err, pipeline.ErrInvalid) {
				t.Errorf("%s: %v, want %q", name, err, says)
			}
		}
	}
	x := two()
	x.c.Layers[0].ForwardS = -1
	if second(pipeline.Check(x.c, x.p, x.plan)) == nil {
		t.Error("a chain with a negative time is taken")
	}
}

// TestOtherPlans: the same plan without ops, and a periodic one whose stage recomputes.
func TestOtherPlans(t *testing.T) {
	t.Parallel()
	x := two()
	for s := range x.plan.Stages {
		x.plan.Stages[s].Ops, x.plan.Stages[s].LastOps = nil, nil
	}
	x.at(pipeline.B, 0, 0).Start = 10 // it waits for its gradient
	if r, err := pipeline.Check(x.c, x.p, x.plan); err != nil || r.Makespan != 12 || r.PerDeviceBusy[0] != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	x = two()
	periodic := &pipeline.Plan{Versions: pipeline.Stash, Period: 8, Stages: []pipeline.Stage{{First: 1, Last: 2, Devices: []int{0}}}, PerDevicePeak: []int64{5, 0}}
	periodic.Stages[0].Ops, _ = schedule.Parse("Fck1 F2 Fall1 Fall2 B2 B1")
	periodic.Tasks = []pipeline.Task{{Kind: pipeline.F}, {Kind: pipeline.B, Start: 2}}
	// The most is there while B2 runs: a_0, ā_1, ā_2 and δ_1, or while B1 does: a_0, ā_1, δ_1 and δ_0.
	r, err := pipeline.Check(x.c, x.p, periodic)
	if err != nil || !slices.Equal(r.PerDevicePeak, []int64{4, 0}) || r.PerDeviceBusy[0] != 8 || len(r.Warnings) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	periodic.PerDevicePeak[0] = 4
	if r, err := pipeline.Check(x.c, x.p, periodic); err != nil || len(r.Warnings) != 0 {
		t.Errorf("%+v, %v: what the plan says is right", r, err)
	}
}

func second[T any](_ T, err error) error { return err }

// FuzzCheck: whatever a file says, it is judged or refused, by an error that names it.
func FuzzCheck(f *testing.F) {
	x := two()
	data, err := x.plan.MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for _, change := range [][2]string{{"last_ops", "ops"}, {`"ops"`, `"last_ops"`}, {`[0]`, `[]`}, {`flush`, `stash`}, {"forward_all", "prefetch"}, {`"shift":1`, `"shift":9`}} {
		f.Add([]byte(strings.Replace(string(data), change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		plan := new(pipeline.Plan)
		if plan.UnmarshalJSON(data) != nil || plan.Microbatches > 1<<16 || plan.MinibatchesPerPeriod > 1<<16 {
			return
		}
		report, err := pipeline.Check(x.c, x.p, plan)
		_, simulated := pipeline.Simulate(x.c, x.p, plan, pipeline.Noise{Periods: 1})
		switch {
		case err == nil && (report == nil || simulated != nil):
			t.Fatalf("%s: %+v, simulated %v", data, report, simulated)
		case err != nil && err.Error() == "":
			t.Fatalf("%s: an error that says nothing", data)
		}
	})
}
