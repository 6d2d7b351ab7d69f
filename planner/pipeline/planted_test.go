package pipeline_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

const (
	F, B, W, CF, CB = pipeline.F, pipeline.B, pipeline.W, pipeline.CF, pipeline.CB
	none            = pipeline.None
)

// layer returns a layer whose activation and gradient have the same size.
func layer(forward, backward float64, bytes, weights int64) chain.Layer {
	return chain.Layer{Name: "layer", ForwardS: forward, BackwardS: backward, OutputBytes: bytes, SavedBytes: bytes, GradientBytes: bytes, WeightBytes: weights}
}

// staircase is three stages of one layer with F = B = 1 on three devices, in the pattern without idle time, T = 2:
//
//	device 0  F0 B0
//	device 1  B1 F1
//	device 2  F2 B2
func staircase() pipelinetest.Case {
	c := &chain.Chain{Name: "three", InputBytes: 1, Layers: []chain.Layer{layer(1, 1, 1, 1), layer(1, 1, 1, 1), layer(1, 1, 1, 1)}}
	pf := pipeline.NewPlatform(3, pipeline.NoLimit, pipeline.Free())
	pf.NoBuffers = true
	return pipelinetest.Case{Chain: c, Platform: pf, Plan: &pipeline.Plan{
		Chain: "three", Versions: pipeline.DoubleBuffered, Period: 2,
		Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}, {First: 2, Last: 2, Devices: []int{1}}, {First: 3, Last: 3, Devices: []int{2}}},
		Tasks: []pipeline.Task{
			{Kind: F, Stage: 0, Device: 0, Start: 0, Shift: 2}, {Kind: F, Stage: 1, Device: 1, Start: 1, Shift: 2},
			{Kind: F, Stage: 2, Device: 2, Start: 0, Shift: 1}, {Kind: B, Stage: 2, Device: 2, Start: 1, Shift: 1},
			{Kind: B, Stage: 1, Device: 1, Start: 0, Shift: 0}, {Kind: B, Stage: 0, Device: 0, Start: 1, Shift: 0},
		},
	}}
}

// messages is two stages on two devices, everything one after the other, T = 11: a = δ = 4 bytes at 2 bytes/s.
func messages() pipelinetest.Case {
	c := &chain.Chain{Name: "two", InputBytes: 8, Layers: []chain.Layer{layer(2, 3, 4, 10), layer(1, 1, 6, 20)}}
	return pipelinetest.Case{Chain: c, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, 2), Plan: &pipeline.Plan{
		Chain: "two", Versions: pipeline.DoubleBuffered, Period: 11,
		Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}, {First: 2, Last: 2, Devices: []int{1}}},
		Tasks: []pipeline.Task{
			{Kind: F, Stage: 0, Device: 0, Start: 0}, {Kind: CF, Stage: 0, Device: 0, Start: 2}, {Kind: F, Stage: 1, Device: 1, Start: 4},
			{Kind: B, Stage: 1, Device: 1, Start: 5}, {Kind: CB, Stage: 0, Device: pipeline.NoDevice, Start: 6}, {Kind: B, Stage: 0, Device: 0, Start: 8},
		},
	}}
}

// gpipe is two stages and two microbatches, all forwards first: F = 1, B = 2, of which the halves are 1 and 1.
func gpipe() pipelinetest.Case {
	half := 1.0
	l := layer(1, 2, 1, 1)
	l.BackwardInputS, l.BackwardWeightS = &half, &half
	pf := pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())
	pf.NoBuffers = true
	return pipelinetest.Case{Chain: &chain.Chain{Name: "flush", InputBytes: 1, Layers: []chain.Layer{l, l}}, Platform: pf, Plan: &pipeline.Plan{
		Chain: "flush", Versions: pipeline.Flush, Microbatches: 2,
		Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}, {First: 2, Last: 2, Devices: []int{1}}},
		Tasks: []pipeline.Task{
			{Kind: F, Stage: 0, Device: 0, Start: 0, Shift: 0}, {Kind: F, Stage: 0, Device: 0, Start: 1, Shift: 1},
			{Kind: F, Stage: 1, Device: 1, Start: 1, Shift: 0}, {Kind: F, Stage: 1, Device: 1, Start: 2, Shift: 1},
			{Kind: B, Stage: 1, Device: 1, Start: 3, Shift: 0}, {Kind: B, Stage: 1, Device: 1, Start: 5, Shift: 1},
			{Kind: B, Stage: 0, Device: 0, Start: 5, Shift: 0}, {Kind: B, Stage: 0, Device: 0, Start: 7, Shift: 1},
		},
	}}
}

// replicated is a first stage on two devices, one minibatch each in a period of two.
func replicated() pipelinetest.Case {
	k := gpipe()
	k.Platform = pipeline.NewPlatform(3, pipeline.NoLimit, pipeline.Free())
	k.Plan = &pipeline.Plan{
		Chain: "flush", Versions: pipeline.Latest, Period: 6, MinibatchesPerPeriod: 2,
		Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0, 1}}, {First: 2, Last: 2, Devices: []int{2}}},
		Tasks: []pipeline.Task{
			{Kind: F, Stage: 0, Device: 0, Start: 0, Shift: 2}, {Kind: F, Stage: 0, Device: 1, Start: 3, Shift: 3},
			{Kind: F, Stage: 1, Device: 2, Start: 1, Shift: 2}, {Kind: F, Stage: 1, Device: 2, Start: 4, Shift: 3},
			{Kind: B, Stage: 1, Device: 2, Start: 2, Shift: 2}, {Kind: B, Stage: 1, Device: 2, Start: 5, Shift: 3},
			{Kind: B, Stage: 0, Device: 0, Start: 4, Shift: 2}, {Kind: B, Stage: 0, Device: 1, Start: 1, Shift: 1},
		},
	}
	return k
}

// instant is one stage whose forward takes no time.
func instant() pipelinetest.Case {
	return pipelinetest.Case{
		Chain: &chain.Chain{Name: "zero", InputBytes: 5, Layers: []chain.Layer{layer(0, 2, 1, 0)}}, Platform: pipeline.NewPlatform(1, pipeline.NoLimit, pipeline.Free()),
		Plan: &pipeline.Plan{Chain: "zero", Period: 3, Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}}, Tasks: []pipeline.Task{{Kind: F}, {Kind: B}}},
	}
}

// The plans above are valid, with the figures that one finds by hand.
func TestFiguresByHand(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		pipelinetest.Case
		nca          []int
		peak         []int64
		time, bubble float64
	}{
		"staircase": {staircase(), []int{3, 2, 1}, []int64{6, 5, 4}, 2, 0},
		// 3 copies of 10, buffers 4+4, a_0 = 8; 3 copies of 20, buffers 4+4, a_1 = 4
		"messages":   {messages(), []int{1, 1}, []int64{46, 72}, 11, 1 - 7.0/22},
		"gpipe":      {gpipe(), []int{2, 2}, []int64{4, 4}, 4.5, 1.0 / 3},
		"replicated": {replicated(), []int{1, 1}, []int64{5, 5, 5}, 3, 1 - 12.0/18},
		"instant":    {instant(), []int{1}, []int64{5}, 3, 1.0 / 3},
	} {
		r, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !equal(r.NCA, k.nca) || !equal(r.PerDevicePeak, k.peak) || r.PerMinibatch != k.time || !near(r.Bubble, k.bubble) {
			t.Errorf("%s: %+v, want %+v", name, r, k)
		}
	}
}

// Every rule, broken once: refused by that rule, with the offending task and what it waits for.
func TestPlantedViolations(t *testing.T) {
	t.Parallel()
	type plan = pipelinetest.Case
	half := 0.5
	for name, x := range map[string]struct {
		of          func() plan
		change      func(k *plan)
		rule        pipeline.Rule
		task, other int
		says        string
	}{
		"gap":            {staircase, func(k *plan) { k.Plan.Stages[1].First = 3 }, pipeline.RuleStages, none, none, "stage 1 holds layers 3 to 2, it must start at layer 2"},
		"not all layers": {staircase, func(k *plan) { k.Chain.Layers = append(k.Chain.Layers, layer(1, 1, 1, 1)) }, pipeline.RuleStages, none, none, "layers 1 to 3, the chain has 4"},
		"no such device": {staircase, func(k *plan) { k.Platform = pipeline.NewPlatform(2, 99, 1) }, pipeline.RuleStages, none, none, "stage 2 is on device 2, the platform has 0 to 1"},
		"device twice":   {staircase, func(k *plan) { k.Plan.Stages[0].Devices = []int{0, 0} }, pipeline.RuleStages, none, none, "names device 0 twice"},
		"no device":      {staircase, func(k *plan) { k.Plan.Stages[0].Devices = nil }, pipeline.RuleStages, none, none, "stage 0 has no device"},
		"halves":         {staircase, func(k *plan) { k.Plan.Tasks[3].Kind = W }, pipeline.RuleStages, none, none, "layer 3 (layer) of the chain lacks backward_input_s"},
		"kind":           {staircase, func(k *plan) { k.Plan.Tasks[0].Kind = 9 }, pipeline.RuleTasks, 0, none, "no such kind"},
		"stage":          {staircase, func(k *plan) { k.Plan.Tasks[1].Stage = 7 }, pipeline.RuleTasks, 1, none, "task 1, F7(2): no such stage, there are 0 to 2"},
		"wrong device":   {staircase, func(k *plan) { k.Plan.Tasks[0].Device = 1 }, pipeline.RuleTasks, 0, none, "task 0, F0(2): on device 1, the stage is on [0]"},
		"outside":        {staircase, func(k *plan) { k.Plan.Tasks[0].Start = 2 }, pipeline.RuleTasks, 0, none, "outside the period of 2 s"},
		"before 0":       {staircase, func(k *plan) { k.Plan.Tasks[0].Start = -1 }, pipeline.RuleTasks, 0, none, "before 0"},
		"microbatch":     {gpipe, func(k *plan) { k.Plan.Tasks[0].Shift = 2 }, pipeline.RuleTasks, 0, none, "microbatches are 0 to 1"},
		"large shift":    {staircase, func(k *plan) { k.Plan.Tasks[0].Shift = 1 << 40 }, pipeline.RuleTasks, 0, none, "cannot be meant"},
		"last boundary":  {messages, func(k *plan) { k.Plan.Tasks[1].Stage = 1 }, pipeline.RuleTasks, 1, none, "the last stage has no boundary"},
		"twice":          {staircase, func(k *plan) { k.Plan.Tasks = append(k.Plan.Tasks, k.Plan.Tasks[2]) }, pipeline.RuleOnce, 6, 2, "a second one for residue 0, after task 2"},
		"residue twice":  {replicated, func(k *plan) { k.Plan.Tasks[1].Shift = 4 }, pipeline.RuleOnce, 1, 0, "a second one for residue 0, after task 0"},
		"missing":        {gpipe, func(k *plan) { k.Plan.Tasks = k.Plan.Tasks[:7] }, pipeline.RuleOnce, none, none, "B of stage 0 is missing for microbatch 1"},
		"no message":     {messages, func(k *plan) { k.Plan.Tasks[1] = k.Plan.Tasks[5]; k.Plan.Tasks = k.Plan.Tasks[:5] }, pipeline.RuleOnce, none, none, "CF of stage 0 is missing for residue 0"},
		"replica": {replicated, func(k *plan) { k.Plan.Tasks[6].Device, k.Plan.Tasks[7].Device = 1, 0 }, pipeline.RuleReplica, 6, 0,
			"task 6, B0(2) runs on device 1, its forward, task 0, F0(2), on 0"},
		"message inside": {messages, func(k *plan) { k.Plan.Stages[1].Devices[0] = 0; k.Plan.Tasks[2].Device, k.Plan.Tasks[3].Device = 0, 0 }, pipeline.RuleBoundary, 1, none,
			"task 1, CF0(0): both stages are on device 0"},
		"message elsewhere": {messages, func(k *plan) { k.Platform = pipeline.NewPlatform(3, 999, 2); k.Plan.Tasks[1].Device = 2 }, pipeline.RuleBoundary, 1, none, "on device 2, its ends are 0 and 1"},
		"no link": {messages, func(k *plan) {
			k.Platform = pipeline.NewPlatform(3, 999, 2)
			k.Platform.Pairs = map[[2]int]float64{{0, 1}: 0}
		}, pipeline.RuleBoundary, none, none, "devices 0 and 1, which no link joins"},
		"duration": {staircase, func(k *plan) { k.Plan.Tasks[4].Duration = &half }, pipeline.RuleDuration, 4, none, "its duration_s is 0.5, the chain and the platform say 1"},
		"forward early": {staircase, func(k *plan) { k.Plan.Tasks[1].Shift = 3 }, pipeline.RuleDependency, 1, 0,
			"task 1, F1(3) starts at -5 s for residue 0: it waits for task 0, F0(2), which ends at -3 s"},
		"loss early":     {staircase, func(k *plan) { k.Plan.Tasks[3].Shift = 2 }, pipeline.RuleDependency, 3, 2, "task 3, B2(2) starts at -3 s for residue 0: it waits for task 2, F2(1), which ends at -1 s"},
		"backward early": {staircase, func(k *plan) { k.Plan.Tasks[4].Shift = 1 }, pipeline.RuleDependency, 4, 3, "it waits for task 3, B2(1)"},
		"message early":  {messages, func(k *plan) { k.Plan.Tasks[1].Start = 1 }, pipeline.RuleDependency, 1, 0, "it waits for task 0, F0(0), which ends at 2 s"},
		"message late":   {messages, func(k *plan) { k.Plan.Tasks[4].Start = 7 }, pipeline.RuleDependency, 5, 4, "task 5, B0(0) starts at 8 s for residue 0: it waits for task 4, CB0(0), which ends at 9 s"},
		"message longer": {messages, func(k *plan) { k.Chain.Layers[0].GradientBytes = 5 }, pipeline.RuleDependency, 5, 4, "which ends at 8.5 s"},
		"device busy":    {gpipe, func(k *plan) { k.Plan.Tasks[1].Start = 0.5 }, pipeline.RuleResource, 1, 0, "device 0: task 1, F0(1) starts at 0.5 s, before task 0, F0(0) ends at 1 s"},
		"around the end": {staircase, func(k *plan) { k.Chain.Layers[0].BackwardS = 1.5 }, pipeline.RuleResource, 5, none, "device 0 is used for 2.5 s in a period of 2 s"},
		"link busy": {messages, func(k *plan) {
			k.Plan.Tasks[4].Start, k.Plan.Tasks[4].Shift, k.Plan.Tasks[5].Shift = 3, -1, -1
		}, pipeline.RuleResource, 4, 1, "link 0-1: task 4, CB0(-1) starts at 3 s, before task 1, CF0(0) ends at 4 s"},
		"interruption": {instant, func(k *plan) { k.Plan.Tasks[0].Start, k.Plan.Tasks[0].Shift = 1, 1 }, pipeline.RuleResource, 0, 1, "task 0, F0(1), of no duration, interrupts task 1, B0(0)"},
		"memory":       {messages, func(k *plan) { k.Platform.Memory[1] = 71 }, pipeline.RuleMemory, 2, none, "device 1 needs 72 B at task 2, F1(0) (weights 60 B, buffers 8 B), it has 71 B"},
	} {
		k := x.of()
		x.change(&k)
		r, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		var invalid *pipeline.InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, pipeline.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v := invalid.Violations[0]
		if v.Rule != x.rule || v.Task != x.task || v.Other != x.other || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %+v, want %s, task %d, other %d, %q", name, v, x.rule, x.task, x.other, x.says)
		}
		if later := x.rule == pipeline.RuleDuration || x.rule == pipeline.RuleDependency || x.rule == pipeline.RuleResource || x.rule == pipeline.RuleMemory; later != (r != nil) {
			t.Errorf("%s: report %v", name, r)
		}
		if invalid.OnlyMemory() != (x.rule == pipeline.RuleMemory) {
			t.Errorf("%s: OnlyMemory is %v", name, invalid.OnlyMemory())
		}
	}
}

// Plans that cannot be judged are refused with the field that is wrong.
func TestUnusablePlans(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(k *pipelinetest.Case){
		"has no stages":                            func(k *pipelinetest.Case) { k.Plan.Stages = nil },
		`"accounting" is "most"`:                   func(k *pipelinetest.Case) { k.Plan.Accounting = "most" },
		`"microbatches" is 0`:                      func(k *pipelinetest.Case) { k.Plan.Versions = pipeline.Flush },
		`"period_s" is 0`:                          func(k *pipelinetest.Case) { k.Plan.Period = 0 },
		`"minibatches_per_period" is -1`:           func(k *pipelinetest.Case) { k.Plan.MinibatchesPerPeriod = -1 },
		`"weight_versions" is "odd"`:               func(k *pipelinetest.Case) { k.Plan.Versions = "odd" },
		`"weight_copies" has 2 entries for 3`:      func(k *pipelinetest.Case) { k.Plan.WeightCopies = []float64{1, 2} },
		`"weight_copies" is -1`:                    func(k *pipelinetest.Case) { k.Plan.WeightCopies = []float64{-1} },
		"2 timings for 6 tasks":                    func(k *pipelinetest.Case) { k.Plan.Timings = make([]*pipeline.Timing, 2) },
		"task 3 takes 1 s, of which 2 s before":    timed(pipeline.Timing{Length: 1, Early: 2}),
		"task 3 takes NaN s":                       timed(pipeline.Timing{Length: math.NaN()}),
		"task 3 takes +Inf s":                      timed(pipeline.Timing{Length: math.Inf(1)}),
		"task 3 takes -1 s":                        timed(pipeline.Timing{Length: -1}),
		`"devices" is 0`:                           func(k *pipelinetest.Case) { k.Platform.Devices = 0 },
		`layer 1 (layer): field "forward_s" is -1`: func(k *pipelinetest.Case) { k.Chain.Layers[0].ForwardS = -1 },
	} {
		k := staircase()
		change(&k)
		if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err == nil || r != nil || errors.Is(err, pipeline.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", says, r, err)
		}
	}
}

// timed gives one task a time of its own.
func timed(x pipeline.Timing) func(k *pipelinetest.Case) {
	return func(k *pipelinetest.Case) {
		k.Plan.Timings = make([]*pipeline.Timing, len(k.Plan.Tasks))
		k.Plan.Timings[3] = &x
	}
}

// If a plan says a wrong figure about itself, the checker warns.
func TestWarnings(t *testing.T) {
	t.Parallel()
	k := gpipe()
	k.Plan.PerDevicePeak, k.Plan.Predicted.Makespan = []int64{4, 4}, 9
	if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil || r.Warnings != nil {
		t.Errorf("%+v, %v", r, err)
	}
	k.Plan.PerDevicePeak, k.Plan.Predicted.Makespan, k.Plan.Predicted.LowerBound = []int64{4, 5}, 8, 4.6
	want := []string{
		"the plan says that per_device_peak_bytes is [4 5], it is [4 4]", "the plan says that makespan_s is 8, it is 9",
		"the plan says that lower_bound_s is 4.6, and takes 4.5 a minibatch: its bound is wrong",
	}
	if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil || !equal(r.Warnings, want) || r.LowerBound != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Versions and accounting: what they add to the peak of the first stage of the staircase, whose live minibatches are 3. With
// vertical_sync the second stage, which has 2, keeps the versions that the first one needs.
func TestVersionsAndAccounting(t *testing.T) {
	t.Parallel()
	for want, change := range map[int64]func(p *pipelinetest.Case){
		3 + 3: func(k *pipelinetest.Case) {},
		4 + 3: func(k *pipelinetest.Case) { k.Plan.Versions = pipeline.Stash },
		2 + 3: func(k *pipelinetest.Case) { k.Plan.Versions = pipeline.Latest },
		16 + 3: func(k *pipelinetest.Case) {
			k.Plan.Versions, k.Plan.WeightCopies = pipeline.VerticalSync, []float64{16}
		},
		9 + 3:   func(k *pipelinetest.Case) { k.Plan.WeightCopies = []float64{8.5, 1, 1} }, // 8.5 copies round up
		3 + 3*8: func(k *pipelinetest.Case) { k.Plan.Accounting, k.Chain.Layers[0].SavedBytes = pipeline.Saved, 7 },
	} {
		k := staircase()
		change(&k)
		if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil || r.PerDevicePeak[0] != want {
			t.Errorf("peak %v, want %d; %v", r, want, err)
		}
	}
	k := staircase()
	k.Plan.Versions = pipeline.VerticalSync
	if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil || !equal(r.PerDeviceWeights, []int64{4, 4, 4}) {
		t.Errorf("vertical_sync: weights %v, want 3 versions and a gradient on each device; %v", r, err)
	}
}

// The published patterns and optima in the shared vectors are accepted, with their peaks.
func TestVectors(t *testing.T) {
	t.Parallel()
	var doc struct {
		General struct {
			Cases []struct {
				Chain   *chain.Chain
				Devices int
				Memory  *int64 `json:"memory_bytes"`
				Plan    *pipeline.Plan
				Peak    []int64 `json:"per_device_peak_bytes"`
				Period  float64 `json:"period_s"`
			}
		}
	}
	read(t, shared.Path(t, "vectors", "pipeline_small.json"), &doc)
	plans := 0
	for i, v := range doc.General.Cases {
		if v.Plan == nil {
			continue // nothing fits
		}
		plans++
		memory := int64(pipeline.NoLimit)
		if v.Memory != nil {
			memory = *v.Memory
		}
		r, err := pipeline.Check(v.Chain, pipeline.NewPlatform(v.Devices, memory, pipeline.Free()), v.Plan)
		if err != nil || !equal(r.PerDevicePeak, v.Peak) || r.Period != v.Period {
			t.Errorf("case %d: %+v, %v; want %v, %g", i, r, err, v.Peak, v.Period)
		}
	}
	if n := len(doc.General.Cases); n != 88 || plans < 44 {
		t.Errorf("%d cases, %d plans", n, plans)
	}
}

// An instant task may be where any of three backwards, of 2 s each, begins or ends, and nowhere within one.
func TestInterruptions(t *testing.T) {
	t.Parallel()
	for _, periodic := range []bool{false, true} {
		for half := range 12 {
			at := float64(half) / 2 // of the forward of microbatch 2, which must be before its backward at 4 s
			k := instant()
			k.Plan.Tasks = nil
			for m := range 3 {
				k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: F, Shift: m}, pipeline.Task{Kind: B, Start: float64(2 * m), Shift: m})
			}
			k.Plan.Tasks[4].Start = at
			if k.Plan.Versions, k.Plan.Microbatches = pipeline.Flush, 3; periodic {
				k.Plan.Versions, k.Plan.Microbatches, k.Plan.MinibatchesPerPeriod = pipeline.Latest, 0, 3
				k.Plan.Period = 6
				for i := range k.Plan.Tasks { // half a second later, so that the last backward runs over the end
					x := &k.Plan.Tasks[i]
					if x.Start += 0.5; x.Start >= 6 {
						x.Start -= 6
						x.Shift -= 3
					}
				}
			}
			if at > 4 {
				k.Plan.Tasks[4].Shift += 3 // the forward of a minibatch whose backward is a period later
			}
			_, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
			var invalid *pipeline.InvalidError
			switch {
			case at > 4 && !periodic: // no such microbatch
				continue
			case half%4 == 0 && err != nil:
				t.Errorf("at %g, periodic %v: %v", at, periodic, err)
			case half%4 != 0 && (!errors.As(err, &invalid) || invalid.Violations[0].Task != 4 || invalid.Violations[0].Other != 1+2*(half/4)):
				t.Errorf("at %g, periodic %v: %v", at, periodic, err)
			}
		}
	}
}

// All readers of a plan refuse a chain with branches, though its layers alone would be a chain. A plan for the layers alone says nothing
// about the inputs that the layer behind the branches waits for.
func TestBranchesAreRefused(t *testing.T) {
	t.Parallel()
	k, flush := staircase(), gpipe()
	for name, judge := range map[string]func() error{
		"request":  func() error { return pipeline.Request{Chain: k.Chain, Platform: k.Platform}.Validate() },
		"check":    func() error { _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); return err },
		"simulate": func() error { _, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{}); return err },
		"timed":    func() error { _, err := pipeline.Timed(flush.Chain, flush.Platform, flush.Plan); return err },
	} {
		k.Chain.Branches, flush.Chain.Branches = nil, nil
		if err := judge(); err != nil {
			t.Errorf("%s: %v without branches", name, err)
		}
		k.Chain.Branches, flush.Chain.Branches = []int{1, 1}, []int{1}
		if err := judge(); !errors.Is(err, pipeline.ErrBranches) || !strings.Contains(err.Error(), `field "branches" of`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.Chain.Branches = []int{3}
	if err := (pipeline.Request{Chain: k.Chain, Platform: k.Platform}).Validate(); !errors.Is(err, chain.ErrFormat) {
		t.Errorf("branches without a loss: %v", err)
	}
	k.Chain.Branches, k.Platform.Devices = nil, 0
	if err := (pipeline.Request{Chain: k.Chain, Platform: k.Platform}).Validate(); !errors.Is(err, pipeline.ErrPlatform) {
		t.Errorf("a platform without devices: %v", err)
	}
}
