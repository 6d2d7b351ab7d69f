package receipt

import (
	"math/rand/v2"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// two is a chain of two layers, each updated by the device or the host.
func two() *chain.Chain {
	c := &chain.Chain{Name: "two", InputBytes: 100}
	for _, name := range []string{"a", "b"} {
		host := 0.005
		c.Layers = append(c.Layers, chain.Layer{
			Name: name, ForwardS: 0.002, BackwardS: 0.004, OutputBytes: 100, SavedBytes: 1000, GradientBytes: 100, WeightBytes: 6000,
			Update: chain.Update{StateBytes: 2000, DeviceS: 0.003, HostS: &host},
		})
	}
	return c
}

var cyclicTexts = []string{
	"Fall1 Fall2 B2 U2 B1 U1",
	"Fall1 Fall2 B2 Og2 Dw2 H2 B1 Og1 Dw1 H1 Pw1 Pw2",
	"H2' Pw1 Fall1.1 Fall1.2 Dw1 Pw2 Fall2.1 Fall2.2 B2.1 B2.2 Og2 Dw2 Pw1 B1.1 B1.2 Og1 Dw1 H1",
	"Ps1 U1' Os1 Ds1 Fall1 O2 Fall2 P2 B2 U2 B1",
	"Fall1 Fall2 B2 Og2 B1 Og1 Dw1 H1 Dw2 H2 Pw1 Pw2",
}

// played simulates a plan of a chain over a link of 1 MB/s.
func played(t *testing.T, c *chain.Chain, text string, memory int64) (*cycle.Simulator, *cycle.Result, error) {
	t.Helper()
	seq, err := cycle.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cycle.NewSimulator(c, cycle.Link{ToDevice: 1e6, ToHost: 1e6, Duplex: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(seq, cycle.Limits{Memory: memory, Host: cycle.NoLimit})
	return s, r, err
}

// cyclicReceipt is the receipt of a plan that was predicted by one chain, and ran as another one says.
func cyclicReceipt(t *testing.T, planned, ran *chain.Chain, text string, memory int64, change func([]cycle.Span)) *Receipt {
	t.Helper()
	s, r, err := played(t, planned, text, memory)
	if err != nil {
		return nil
	}
	_, was, err := played(t, ran, text, memory)
	if err != nil {
		return nil
	}
	spans := was.Spans()
	change(spans)
	windows := s.Windows(spans, was.WarmUp, r.Repeats)
	if len(windows) == 0 {
		return nil
	}
	return NewCycle(Cycle{Chain: planned, Sim: s, Result: r, Spans: spans, Window: windows[len(windows)-1]})
}

func unchanged([]cycle.Span) {}

// If the ops, the update on the device, the update on the host or the copies take longer in a run, the receipt names
// that cause.
func TestCausesOfCyclicPlans(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		text   string
		change func(c *chain.Chain)
		want   Cause
		gap    time.Duration
	}{
		"as predicted":    {cyclicTexts[1], func(*chain.Chain) {}, Ops, 0},
		"slow op":         {cyclicTexts[0], func(c *chain.Chain) { c.Layers[1].BackwardS += 0.002 }, Ops, ms(2)},
		"slow update":     {cyclicTexts[0], func(c *chain.Chain) { c.Layers[1].Update.DeviceS += 0.002 }, Update, ms(2)},
		"slow host":       {cyclicTexts[1], func(c *chain.Chain) { *c.Layers[0].Update.HostS += 0.004 }, HostUpdates, ms(4)},
		"fast host":       {cyclicTexts[1], func(c *chain.Chain) { *c.Layers[0].Update.HostS -= 0.002 }, HostUpdates, -ms(2)},
		"slow first copy": {cyclicTexts[1], func(c *chain.Chain) { c.Layers[0].WeightBytes += 3000 }, Transfers, ms(6)},
	} {
		ran := two()
		x.change(ran)
		r := cyclicReceipt(t, two(), ran, x.text, cycle.NoLimit, unchanged)
		if r == nil {
			t.Fatalf("%s: no receipt", name)
		}
		sums(t, name, r)
		if r.Gap() != x.gap || r.By[x.want] != x.gap || r.Largest() != x.want {
			t.Errorf("%s: gap %v, by %v", name, r.Gap(), r.By)
		}
	}
}

// A fetch that starts late, and is no slower, is a wait for a transfer; a launch that comes late is a launch gap.
func TestLateCopiesAndLaunchesOfCyclicPlans(t *testing.T) {
	t.Parallel()
	for cause, kind := range map[Cause]schedule.Kind{TransferWaits: schedule.FetchWeights, Launches: schedule.Backward} {
		seq, _ := cycle.Parse(cyclicTexts[1])
		r := cyclicReceipt(t, two(), two(), cyclicTexts[1], cycle.NoLimit, func(all []cycle.Span) {
			late := time.Duration(0)
			for i := range all { // from the first op of the kind in each step on
				if all[i].Position == firstOf(seq, kind) {
					late += ms(3)
				}
				all[i].Start, all[i].End = all[i].Start+late, all[i].End+late
			}
		})
		sums(t, cause.String(), r)
		if r.Gap() != ms(3) || r.By[cause] != ms(3) {
			t.Errorf("%v: gap %v, by %v", cause, r.Gap(), r.By)
		}
	}
}

func firstOf(seq cycle.Sequence, kind schedule.Kind) int {
	for p, op := range seq {
		if op.Kind == kind {
			return p
		}
	}
	return -1
}

// The causes add up to the gap, to the nanosecond, whatever the ops took, and when they ran.
func TestCausesOfCyclicPlansAlwaysAddUp(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(30, 5))
	made, seen := 0, [causes]int{}
	for k := range 3000 {
		ran := two()
		for i := range ran.Layers {
			l := &ran.Layers[i]
			l.ForwardS, l.BackwardS, l.Update.DeviceS = l.ForwardS*2*rng.Float64(), l.BackwardS*2*rng.Float64(), l.Update.DeviceS*2*rng.Float64()
			*l.Update.HostS *= 2 * rng.Float64()
		}
		text := cyclicTexts[k%len(cyclicTexts)]
		_, free, err := played(t, two(), text, cycle.NoLimit)
		if err != nil {
			t.Fatal(err)
		}
		memory := free.InOrderPeak + rng.Int64N(max(free.Peak-free.InOrderPeak, 0)+1)
		r := cyclicReceipt(t, two(), ran, text, memory, func(all []cycle.Span) { delay(rng, all) })
		if r == nil {
			continue
		}
		made++
		sums(t, text, r)
		for c, d := range r.By {
			if d != 0 {
				seen[c]++
			}
		}
	}
	for c, n := range seen {
		if n < 50 && Cause(c) != Residual && Cause(c) != Messages {
			t.Errorf("%v in %d of %d cases only", Cause(c), n, made)
		}
	}
	if seen[Residual] > 0 {
		t.Error("a cyclic plan has a residual")
	}
}

// delay lets some of the ops run longer, or later, by up to 5 ms, and all behind them later.
func delay(rng *rand.Rand, all []cycle.Span) {
	late := time.Duration(0)
	for i := range all {
		if rng.IntN(10) == 0 {
			late += time.Duration(rng.IntN(5e6))
		}
		all[i].Start += late
		if rng.IntN(10) == 0 {
			late += time.Duration(rng.IntN(5e6))
		}
		all[i].End += late
	}
}
