package pipeline

import (
	"errors"
	"math"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// byHand is two layers of 1 s each way in one stage, whose first saved set is offloaded at 10 bytes/s.
func byHand(t *testing.T) (*chain.Chain, Stage) {
	t.Helper()
	ops, err := schedule.Parse("Fall1 O2 Fall2 P2 B2 B1")
	if err != nil {
		t.Fatal(err)
	}
	return &chain.Chain{Name: "hand", InputBytes: 4, Layers: []chain.Layer{
		{ForwardS: 1, BackwardS: 1, OutputBytes: 2, SavedBytes: 10, GradientBytes: 2},
		{ForwardS: 1, BackwardS: 1, OutputBytes: 2, SavedBytes: 6, GradientBytes: 2},
		{ForwardS: 1, BackwardS: 1},
	}}, Stage{First: 1, Last: 2, Devices: []int{0}, Ops: ops}
}

// TestSwapsByHand: F runs from 0 to 2, the offload could from 1 to 2; B begins later, and the prefetch ends there. One minibatch
// holds 14, 20, 10 without ā_1, 24 while B2 runs, and 20 bytes.
func TestSwapsByHand(t *testing.T) {
	t.Parallel()
	c, st := byHand(t)
	cost, err := MeasureStage(c, st, st.Ops)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		duplex                   bool
		bandwidth, period, later float64
		out, back                float64
		held                     int64
		rule                     Rule
	}{
		{bandwidth: 10, period: 10, later: 5, out: 1, back: 4, held: 24},
		{bandwidth: 10, period: 10, later: 3, out: 1, back: 2, held: 24},               // just in time
		{bandwidth: 10, period: 10, later: 2, rule: RuleDependency},                    // the prefetch from 1 to 2, the offload behind it
		{bandwidth: 10, period: 4, later: 6, out: 2, back: 5, held: 44},                // another minibatch's prefetch is from 1 to 2
		{bandwidth: 10, period: 4, later: 6, out: 1, back: 5, held: 40, duplex: true},  // and does not matter
		{bandwidth: 5, period: 4, later: 6, out: 2, back: 4, held: 44},                 // busy all the time
		{bandwidth: 4, period: 4, later: 6, rule: RuleResource},                        // 5 s in 4 s
		{bandwidth: 4, period: 4, later: 6, out: 1, back: 3.5, held: 44, duplex: true}, // the prefetch begins when the offload ends
		{bandwidth: 2.4, period: 4, later: 9, rule: RuleResource, duplex: true},        // one transfer is longer than a period
	} {
		p, r := &Platform{Host: x.bandwidth, Duplex: x.duplex}, Rhythm{x.period, x.later}
		held, why := cost.held(p, r, 1)
		if x.rule != "" {
			if why == nil || why.rule != x.rule {
				t.Errorf("%+v: %+v", x, why)
			}
			continue
		}
		swaps, _ := cost.swaps(p, r, 1)
		if why != nil || held != x.held || swaps[0] != (swap{x.out, x.back}) {
			t.Errorf("%+v: %d bytes, %+v, %+v", x, held, swaps, why)
		}
	}
}

// TestSwapsInOrder: the prefetches are on the link from 0.5 to 1.8, so the first offload waits until then. The second offload waits behind
// the first, though there would be room for it before.
func TestSwapsInOrder(t *testing.T) {
	t.Parallel()
	cost := StageCost{Forward: 2, Backward: 2, moves: []move{{bytes: 10, due: 1.5}, {bytes: 3, due: 1.8}}, fetches: []int{0, 1}}
	swaps, why := cost.swaps(&Platform{Host: 10}, Rhythm{10, 20}, 2)
	if why != nil {
		t.Fatal(why)
	}
	for k, want := range []swap{{1.8, 20.5}, {2.8, 21.5}} {
		if got := swaps[k]; math.Abs(got.out-want.out)+math.Abs(got.back-want.back) > 1e-9 {
			t.Errorf("move %d: %+v, want %+v", k, got, want)
		}
	}
}

// TestTransfersRefused: what a plan that offloads can break.
func TestTransfersRefused(t *testing.T) {
	t.Parallel()
	one := func() (*chain.Chain, *Platform, *Plan) {
		c, st := byHand(t)
		p := NewPlatform(2, NoLimit, Free())
		p.Host = 10
		return c, p, &Plan{Chain: "hand", Period: 4, Versions: Latest,
			Stages: []Stage{st, {First: 3, Last: 3, Devices: []int{1}}},
			Tasks: []Task{{Kind: F, Stage: 0, Start: 0}, {Kind: F, Stage: 1, Device: 1, Start: 2},
				{Kind: B, Stage: 1, Device: 1, Start: 3}, {Kind: B, Stage: 0, Start: 2, Shift: -1}}}
	}
	c, p, plan := one()
	p.NoBuffers = true
	report, err := Check(c, p, plan)
	if err != nil || report.PerDevicePeak[0] != 44 {
		t.Fatalf("%+v, %v", report, err)
	}
	ops := func(text string) func(*Platform, *Plan) {
		return func(_ *Platform, x *Plan) {
			seq, err := schedule.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			x.Stages[0].Ops = seq
		}
	}
	count := 0
	for want, change := range map[string]func(*Platform, *Plan){
		"device 0 needs 44 B": func(p *Platform, _ *Plan) { p.Memory[0] = 43 },
		"stage 0 on device 0: op 1 transfers activation 1 in 2.5 s": func(p *Platform, _ *Plan) { p.Host = 4 },
		"its offload ends at 6.5 s": func(p *Platform, x *Plan) {
			p.Host, x.Period, x.Tasks[3] = 4, 9, Task{Kind: B, Start: 4}
		},
		"field \"host_bandwidth_bytes_per_s\"":                                  func(p *Platform, _ *Plan) { p.Host = 0 },
		"periodic plans with one minibatch a period":                            func(_ *Platform, x *Plan) { x.MinibatchesPerPeriod = 2 },
		"op 4 (forward_all 1): it makes or drops activation 1":                  ops("Fck1 O2 Fck2 P2 Fall1 Fall2 B2 B1"),
		"op 5 (prefetch 2): a stage prefetches an activation once":              ops("Fck1 O2 Fck2 P2 F2 P2 Fall2 B2 Fall1 B1"),
		"op 2 (offload 2): a stage offloads before the op that ends F":          ops("Fck1 Fck2 O2 Fall1 Fall2 B2 B1"),
		"op 2 (prefetch 2): a stage prefetches in B, behind the op that ends F": ops("Fall1 O2 P2 Fall2 B2 B1"),
		"op 2 (forward_checkpoint 1): it makes or drops activation 1":           ops("Fck1 O2 Fck1 O2 Fall2 P2 B2 Fall1 B1"),
		"op 2 (forward_discard 2): it makes or drops activation 1":              ops("Fck1 O2 F2 P2 Fall2 B2 Fall1 B1"),
		"activation 1 was never offloaded":                                      ops("Fall1 Fck2 P2 Fall2 B2 B1"),
	} {
		c, p, plan := one()
		p.NoBuffers = true
		change(p, plan)
		if _, err := Check(c, p, plan); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		count++
	}
	if count != 12 {
		t.Errorf("%d cases", count)
	}
	p.Memory[0] = 44
	if _, err := Check(c, p, plan); err != nil {
		t.Errorf("with its own peak: %v", err)
	}
}

func TestMeasureErrors(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Layers: make([]chain.Layer, 4)}
	for text, want := range map[string]string{
		"Fall2 Fall3 B3":       "backwards from 2 down to 2 are missing",
		"Fall1 Fall3 B3 B1":    "op 0 (forward_all 1): the stage has layers 2 to 3",
		"Fall2 O3 Fall3 B3 B2": "activation 2 is not in device memory",
		"Fall2 B2 Fall3 B3":    "δ_2 is not in memory",
		"Fck2 F3 B3":           "is not in device memory",
		"Fck2 F3 Fall2 B2":     "δ_2 is not in memory, δ_3 is",
		"Fall2 Fall3 B3 B2 B2": "is not in",
	} {
		seq, err := schedule.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := MeasureStage(c, Stage{First: 2, Last: 3}, seq); !errors.Is(err, ErrOps) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestCheckErrors: what a plan with ops can break beside what Check finds.
func TestCheckErrors(t *testing.T) {
	t.Parallel()
	one := func() (*chain.Chain, *Plan) {
		half := 0.5
		c := &chain.Chain{Name: "c", Layers: []chain.Layer{
			{ForwardS: 1, BackwardS: 1, BackwardInputS: &half, BackwardWeightS: &half}, {ForwardS: 1, BackwardS: 1, BackwardInputS: &half, BackwardWeightS: &half},
		}}
		seq, _ := schedule.Parse("Fck1 Fall1 B1")
		return c, &Plan{Chain: "c", Period: 5, Versions: Latest,
			Stages: []Stage{{First: 1, Last: 1, Devices: []int{0}, Ops: seq}, {First: 2, Last: 2, Devices: []int{1}}},
			Tasks: []Task{{Kind: F, Stage: 0, Device: 0, Start: 0}, {Kind: F, Stage: 1, Device: 1, Start: 1},
				{Kind: B, Stage: 1, Device: 1, Start: 2}, {Kind: B, Stage: 0, Device: 0, Start: 3}}}
	}
	p := NewPlatform(2, NoLimit, Free())
	c, plan := one()
	if _, err := Check(c, p, plan); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Plan){
		"stage 0 has ops, so without a flush it must have its devices for itself": func(x *Plan) { x.Stages[1].Devices = []int{0} },
		"stage 0 has ops and W tasks":                     func(x *Plan) { x.Tasks = append(x.Tasks, Task{Kind: W, Stage: 0}) },
		"the stages cover layers 1 to 1, the chain has 2": func(x *Plan) { x.Stages = x.Stages[:1] },
		"stage 1 holds layers 1 to 2":                     func(x *Plan) { x.Stages[1].First = 1 },
		"stage 0: bad ops of a stage":                     func(x *Plan) { x.Stages[0].Ops = x.Stages[0].Ops[:2] },
		"waits for":                                       func(x *Plan) { x.Tasks[1].Start = 0.5 },
		"device 0":                                        func(x *Plan) { x.Tasks[3].Start = 4.5 },
	} {
		c, plan := one()
		change(plan)
		if _, err := Check(c, p, plan); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
