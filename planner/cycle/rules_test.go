package cycle

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// network makes a chain of layers without activations, each forward and backward a second long.
func network(layers ...chain.Layer) *chain.Chain {
	for i := range layers {
		layers[i].ForwardS, layers[i].BackwardS = 1, 1
	}
	return &chain.Chain{Layers: layers}
}

// simulate plays a plan over a duplex link of one byte a second.
func simulate(t *testing.T, c *chain.Chain, text string) (*Result, error) {
	t.Helper()
	seq, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Simulate(c, seq, Link{1, 1, true}, Limits{Memory: NoLimit, Host: NoLimit})
}

// wantRefusal wants a plan to be refused at an op for a reason.
func wantRefusal(t *testing.T, c *chain.Chain, text, want string) {
	t.Helper()
	if _, err := simulate(t, c, text); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %s", text, err, want)
	}
}

// tiedChain has one set of weights, of 4 bytes, that layers 1 and 3 read.
func tiedChain() *chain.Chain {
	host := 2.0
	return network(chain.Layer{WeightBytes: 4, Update: chain.Update{HostS: &host}}, chain.Layer{}, chain.Layer{Update: chain.Update{WeightsOf: 1}})
}

// Tied layers have a gradient each (design, section 8, details): both are there until the update, and both move.
//
// By hand, times of the second plan: Pw1 0 to 4, Fall1 to Fall3 4 to 7, B3 7 to 8, B2 8 to 9, B1 9 to 10. Then Og3 8 to 12, Og1 12 to 16,
// and H1 16 to 18, which the next Pw1 waits for. B1 starts with the weights and both gradients in memory. The host has the same in memory
// when Og1 starts.
func TestTiedLayersHaveAGradientEach(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	for text, want := range map[string][3]int64{ // period, peak, host's peak
		"Fall1 Fall2 Fall3 B3 B2 B1 U1":                                                     {6, 12, 0},
		"Pw1 Fall1 Fall2 Fall3 B3 Og3 B2 B1 Og1 Dw1 H1":                                     {18, 12, 12},
		"Og1' Og3' Dw1 H1' Pw1 Fall1 Fall2 Fall3 B3 B2 B1":                                  {20, 12, 12},
		"Fall1 Fall2 Fall3 B3 Og3 B2 Pg3 B1 U1":                                             {12, 12, 4},
		"U1' Fall1.1 Fall2.1 Fall3.1 B3.1 B2.1 B1.1 Fall1.2 Fall2.2 Fall3.2 B3.2 B2.2 B1.2": {12, 12, 0},
	} {
		r, err := simulate(t, c, text)
		if err != nil || r.Period != float64(want[0]) || r.Peak != want[1] || r.HostPeak != want[2] {
			t.Errorf("%s: %+v, %v, want %v", text, r, err, want)
		}
	}
	wantRefusal(t, c, "Pw1 Fall1 Fall2 Fall3 B3 B2 B1 Og1 Dw1 H1", "op 9 (H1): the gradient of layer 3 is on the device")
	wantRefusal(t, c, "Fall1 Fall2 Fall3 B3 Og3 B2 B1 U1", "op 7 (U1): the gradient of layer 3 is on the host")
	wantRefusal(t, c, "Fall1 Fall2 Fall3 B3 B2 U1 B1", "op 5 (U1): there is no gradient of layer 1 yet")
	wantRefusal(t, c, "Fall1 Fall2 Fall3 Og3' B3 B2 B1 U1", "op 2 (Fall3): layer 1 waits for its update by the gradient of the step before")
	wantRefusal(t, c, "Fall1 Fall2 Fall3 B3 Dw3 B2 B1 U1", "op 4 (Dw3): the weights of layer 3 are those of layer 1: name that")
}

// A frozen layer (design, section 8, details) has weights that come and go, and nothing else.
func TestFrozenLayersAreNotUpdated(t *testing.T) {
	t.Parallel()
	none := int64(0)
	c := network(chain.Layer{WeightBytes: 4, Update: chain.Update{GradientBytes: &none}}, chain.Layer{})
	for text, want := range map[string][3]int64{
		"Fall1 Fall2 B2 B1":                 {4, 4, 0},
		"Pw1 Fall1 Dw1 Fall2 Pw1 B2 B1 Dw1": {11, 4, 4}, // Pw1 0 to 4, Fall1 to 5, Pw1 from 6, when Fall2 has ended, to 10, B1 to 11
	} {
		r, err := simulate(t, c, text)
		if err != nil || r.Period != float64(want[0]) || r.Peak != want[1] || r.HostPeak != want[2] {
			t.Errorf("%s: %+v, %v, want %v", text, r, err, want)
		}
	}
	wantRefusal(t, c, "Fall1 Fall2 B2 B1 U1", "op 4 (U1): layer 1 is frozen: it has no gradient and no update")
	wantRefusal(t, c, "Fall1 Fall2 B2 B1 Og1", "op 4 (Og1): layer 1 is frozen")
	wantRefusal(t, c, "Fall1 Fall2 B2 B1 Ow1", "op 4 (Ow1): the device's weights of layer 1 are not newer than the host's")
	wantRefusal(t, c, "Pw1 Fall1 Dw1 Fall2 B2 B1", "op 5 (B1): the device has no weights of layer 1")
}

// A host update waits for a copy of what it writes (design, section 8, details), also for one that nothing reads.
//
// By hand: Pw1 0 to 4, Fall1 4 to 5, B1 5 to 6, Og1 6 to 7. The second Pw1 takes 6 to 10, and H1 10 to 12. The next Pw1 waits for H1.
func TestHostUpdateWaitsForCopies(t *testing.T) {
	t.Parallel()
	host, gradient := 2.0, int64(1)
	c := network(chain.Layer{WeightBytes: 4, Update: chain.Update{GradientBytes: &gradient, HostS: &host}})
	if r, err := simulate(t, c, "Pw1 Fall1 B1 Dw1 Og1 Pw1 H1 Dw1"); err != nil || r.Period != 12 {
		t.Errorf("%+v, %v", r, err)
	}
}

// If nothing waits for memory and no gradient moves, tied layers with one gradient each keep the period of the oracle. The oracle counts
// one gradient for all of them. Its peak is lower by at most the other gradients.
func TestTiedLayersBesideTheOracle(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(31, 30))
	var trials []trial
	for len(trials) < 200 {
		k := randomTrial(rng)
		k.Memory, k.Host = nil, nil
		n := k.Chain.Len()
		if o := k.Chain.Owner(1); n < 2 || o == 0 {
			continue
		}
		for i := range k.Chain.Layers {
			k.Chain.Layers[i].Update.HostS = nil
		}
		last := k.Chain.Layer(n)
		last.WeightBytes, last.Update = 0, chain.Update{WeightsOf: 1}
		s, err := NewSimulator(k.Chain, k.link())
		if err != nil {
			t.Fatal(err)
		}
		seq := randomPlan(rng, s, k.limits())
		if slices.ContainsFunc(seq, func(o Op) bool { return o.Kind == schedule.OffloadGradient || o.Kind == schedule.FetchGradient }) {
			continue
		}
		k.Seq = seq.String()
		trials = append(trials, k)
	}
	valid := 0
	for i, v := range judgeAll(t, trials) {
		k := trials[i]
		seq, _ := Parse(k.Seq)
		s, err := NewSimulator(k.Chain, k.link())
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(seq, k.limits())
		if class := classOf(err, seq); class != v.class() {
			t.Fatalf("%s: we say %v, the oracle says %s", k.Seq, err, v.Error)
		}
		if err != nil {
			continue
		}
		valid++
		period, _ := new(big.Rat).SetString(v.Period)
		if more := r.Peak - v.Peak; s.player.period(s.costs.clock).Cmp(period) != 0 || more < 0 || more > k.Chain.Layer(1).WeightGradient() {
			t.Fatalf("%s: period %g, peak %d, the oracle says %s, %d", k.Seq, r.Period, r.Peak, v.Period, v.Peak)
		}
	}
	if valid < 50 {
		t.Errorf("%d plans are valid", valid)
	}
}

// A simulator says of each plan what a new one does, whatever it has simulated before.
func TestSimulatorForgetsPlans(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(32, 30))
	for range 40 {
		k := randomTrial(rng)
		used, err := NewSimulator(k.Chain, k.link())
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			seq := randomPlan(rng, used, k.limits())
			got, gotErr := used.Run(seq, k.limits())
			want, wantErr := Simulate(k.Chain, seq, k.link(), k.limits())
			if !reflect.DeepEqual(gotErr, wantErr) || gotErr == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v, %v, a new simulator says %+v, %v", seq, got, gotErr, want, wantErr)
			}
		}
	}
}

// The result says when each op of each step ran: the example of the device's update by hand, over one link of two bytes a second.
//
// By hand: Ps1 0 to 3, U1 3 to 4, Os1 4 to 7, Fall1 4 to 5, B1 5 to 6. The next Ps1 waits for Os1 on the link: a step every 7 s.
func TestStartsOfTheSteadyState(t *testing.T) {
	t.Parallel()
	c := network(chain.Layer{WeightBytes: 4, Update: chain.Update{StateBytes: 6, DeviceS: 1}})
	seq, err := Parse("Ps1' U1' Os1' Ds1' Fall1 B1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(c, seq, Link{ToDevice: 2, ToHost: 2}, Limits{Memory: 14, Host: 6})
	if err != nil {
		t.Fatal(err)
	}
	want := []Start{{0, 0, 0, 3, 14}, {0, 1, 3, 4, 14}, {0, 2, 4, 7, 10}, {0, 4, 4, 5, 10}, {0, 5, 5, 6, 14}, {1, 0, 7, 10, 14}, {1, 1, 10, 11, 14}}
	if len(r.Starts) < len(want) || !reflect.DeepEqual(r.Starts[:len(want)], want) {
		t.Errorf("starts %v, want %v", r.Starts, want)
	}
	if r.Period != 7 || r.Busy != [streams]float64{3, 3, 3, 0} || r.Resident != 8 || r.Peak != 14 || r.PeakStep != 0 || r.PeakOp != 0 || r.HostPeak != 6 {
		t.Errorf("%+v", r)
	}
}

// The tick divides all times where that is possible; otherwise durations are rounded to a part in 2^46 of their sum.
func TestClock(t *testing.T) {
	t.Parallel()
	exact := newClock([]*big.Rat{decimal(0.1), big.NewRat(1, 3), nil, big.NewRat(7, 4)})
	if exact.perSecond.Cmp(big.NewRat(60, 1)) != 0 || exact.ticks(big.NewRat(1, 3)) != 20 || exact.seconds(6) != 0.1 {
		t.Errorf("tick of 1/%v s", exact.perSecond)
	}
	for _, scale := range []float64{1e-12, 1e-3, 1, 1e5, 1e200} {
		times := []*big.Rat{decimal(math.Pi * scale), decimal(math.E * scale), big.NewRat(1, 1<<40)}
		k := newClock(times)
		for _, d := range times[:2] {
			want, _ := d.Float64()
			if got := k.seconds(k.ticks(d)); math.Abs(got-want) > scale*0x1p-42 {
				t.Errorf("%g s are %d ticks, %g s", want, k.ticks(d), got)
			}
		}
		if sum := k.ticks(times[0]) + k.ticks(times[1]); sum > mostTicks || sum < mostTicks/4 {
			t.Errorf("scale %g: %d ticks", scale, sum)
		}
	}
	if none := newClock(nil); none.ticks(new(big.Rat)) != 0 {
		t.Error("no time at all")
	}
}

// Inputs that no sequence can make valid are refused before any sequence is read.
func TestBadSimulators(t *testing.T) {
	t.Parallel()
	branches := network(chain.Layer{}, chain.Layer{}, chain.Layer{})
	branches.Branches = []int{1, 1}
	if _, err := NewSimulator(branches, Link{}); !errors.Is(err, ErrBranches) {
		t.Errorf("branches: %v", err)
	}
	if _, err := NewSimulator(network(), Link{}); !errors.Is(err, chain.ErrFormat) {
		t.Errorf("no layers: %v", err)
	}
	for _, x := range []float64{-1, 1e-200, math.Inf(1), math.NaN()} {
		for _, link := range []Link{{ToDevice: x}, {ToHost: x}} {
			if _, err := NewSimulator(tiedChain(), link); !errors.Is(err, ErrBandwidth) {
				t.Errorf("bandwidth %g: %v", x, err)
			}
		}
	}
	wantRefusal(t, tiedChain(), "Fall1.9", "op 0 (Fall1.9): a step of 1 ops has fewer microbatches")
	wantRefusal(t, network(chain.Layer{}), "", "end of the step: microbatch 1: δ_1 is in memory, the backwards from 1 down to 1 are missing")
	for _, op := range []Op{{Kind: 99, Layer: 1}, {Kind: schedule.Update, Layer: 1, Microbatch: 1}, {Layer: 0}, {Layer: 1, Microbatch: -1}} {
		var rule *RuleError
		if _, err := Simulate(tiedChain(), Sequence{op}, Link{}, Limits{}); !errors.As(err, &rule) || rule.Index != 0 {
			t.Errorf("%+v: %v", op, err)
		}
	}
}

// A plan whose state repeats later than after Limits.Steps counts as one without a steady state.
func TestSimulationsEndAfterTheStepsOfTheLimits(t *testing.T) {
	t.Parallel()
	c, _ := streamed(1, 1)
	seq, err := Parse("Fall1 B1 U1 Ow1") // the copy runs on in the next step
	if err != nil {
		t.Fatal(err)
	}
	link := Link{ToDevice: 500, ToHost: 500, Duplex: true}
	limits := Limits{Memory: NoLimit, Host: NoLimit}
	r, err := Simulate(c, seq, link, limits)
	if err != nil {
		t.Fatal(err)
	}
	played := r.WarmUp + r.Repeats
	if limits.Steps = played; played < 2 {
		t.Fatalf("the state repeats after %d steps", played)
	}
	if _, err := Simulate(c, seq, link, limits); err != nil {
		t.Errorf("%d steps: %v", limits.Steps, err)
	}
	limits.Steps = played - 1
	if _, err := Simulate(c, seq, link, limits); !errors.Is(err, ErrNoSteadyState) {
		t.Errorf("%d steps: %v", limits.Steps, err)
	}
}

// With Limits.UpdatesLast, the backward that completes the gradient of some weights takes the norm's time too, once in a step. By hand: six
// forwards and backwards take a second each; two microbatches have twelve. The norm of the tied weights is measured after B1, the last
// backward of both layers.
func TestTheNormTakesTime(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	c.Layers[0].Update.NormS = 0.5
	c.Layers[2].Update.NormS = 8 // which is not the owner
	for text, want := range map[string]float64{
		"Fall1 Fall2 Fall3 B3 B2 B1 U1": 6.5,
		"Fall1.1 Fall2.1 Fall3.1 B3.1 B2.1 B1.1 Fall1.2 Fall2.2 Fall3.2 B3.2 B2.2 B1.2 U1": 12.5,
	} {
		seq, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, last := range []bool{true, false} {
			r, err := Simulate(c, seq, Link{1, 1, true}, Limits{Memory: NoLimit, Host: NoLimit, UpdatesLast: last})
			if err != nil {
				t.Fatal(err)
			}
			if wants := map[bool]float64{true: want, false: want - 0.5}[last]; r.Period != wants {
				t.Errorf("%s, updates last %v: %v s, want %v", text, last, r.Period, wants)
			}
		}
	}
}
