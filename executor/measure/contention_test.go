package measure

import (
	"math"
	"slices"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// Steps are measured alone and beside copies of each way in turns, as often as there is time for, and what comes of it is a valid chain.
func TestStepsAreMeasuredBesideCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Bandwidth: 200e6}, nil)
	probe := windows{probeBytes, 2 * probeBytes}
	m, err := r.timer(t, probe).newProber(probe, time.Hour)
	must(t, err)
	for i := range m.direction {
		m.direction[i].bytes = firstProbe // as the link's measurement leaves them
	}
	x := &Exercise{Workload: r.Workload, Seq: r.StoreAll(), count: len(r.Layers)}
	for _, of := range []struct {
		repeats        int
		enough         time.Duration
		fewest, rounds int
	}{{5, 0, enoughRounds, besideRounds}, {5, 1, 1, 1}, {1, 0, 2, 2}} {
		steps, rounds, enough := 0, of.fewest, of.enough
		b, err := m.besides(t.Context(), x, &ProfileOptions{Repeats: of.repeats, Enough: enough}, func() { steps++ })
		must(t, err)
		for way := range b.ops {
			if n := len(b.whole[way]); n < rounds || n > of.rounds || slices.ContainsFunc(b.ops[way], func(s []float64) bool { return len(s) != n }) {
				t.Errorf("enough %v, way %d: %d steps, want %d; of ops %v", enough, way, n, rounds, b.ops[way])
			}
		}
		if steps != linkSteps || len(b.rates[0]) < rounds || len(b.rates[1]) < rounds || !(b.slowdown() > 0) {
			t.Errorf("enough %v: %d steps of %d, rates %v, slowdown %v", enough, steps, linkSteps, b.rates, b.slowdown())
		}
		c := x.Chain()
		b.contend(c, &executor.LinkProfile{ToHost: 200e6, ToDevice: 200e6})
		if err := c.Validate(); err != nil || !c.Contends() {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Ops of a class share a factor, the median over rounds of their sum beside copies over that alone; a class that was not measured has that of
// all.
func TestContentionIsThatOfTheClass(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{InputBytes: 1e6, Layers: []chain.Layer{
		{ForwardS: 1e-3, BackwardS: 10e-3, OutputBytes: 1e6, SavedBytes: 1e6, GradientBytes: 1e6}, // 2e9 and 0.4e9 bytes/s
		{ForwardS: 1e-6, BackwardS: 10e-3, OutputBytes: 1e6, SavedBytes: 1e6, GradientBytes: 1e6}, // launches, 0.3e9
		{ForwardS: 40e-3, BackwardS: 2e-3, OutputBytes: 1e6, SavedBytes: 1e6, GradientBytes: 0},   // 0.05e9, 1.5e9
	}}
	f, b := schedule.ForwardAll, schedule.Backward
	one := func(x float64) []float64 { return []float64{9 * x, x, x / 9} }
	x := &besides{exercise: &Exercise{count: 2, Seq: schedule.Sequence{{Kind: f, Layer: 1}, {Kind: f, Layer: 2}, {Kind: b, Layer: 2}, {Kind: b, Layer: 1}}}}
	x.ops = [4][][]float64{
		{one(1), one(0.1), one(10), one(10)}, {one(1.5), one(0.1), one(11), one(12)},
		{one(0.5), one(0.3), one(10), one(10)}, {one(2), one(1e9), one(20), one(30)},
	}
	x.rates = [2][]float64{{5, 10, 20}, {7, 7, 7}}
	x.contend(c, &executor.LinkProfile{ToHost: 15, ToDevice: 6})
	memory, latency, products := chain.Beside{1.5, 1, 2}, chain.Beside{1, 3, mostFactor}, chain.Beside{23. / 20, 1, 2.5}
	for l, want := range [][2]chain.Beside{{memory, products}, {latency, products}, {products, memory}} {
		for i, got := range []*chain.Beside{c.Layers[l].ForwardBeside, c.Layers[l].BackwardBeside} {
			for way := range want[i] {
				if math.Abs(got[way]-want[i][way]) > 1e-9*want[i][way] {
					t.Errorf("layer %d: %v, want %v", l+1, *got, want[i])
				}
			}
		}
	}
	if *c.CopiesBeside != (chain.CopiesBeside{1.5, 1}) {
		t.Errorf("copies %v", *c.CopiesBeside)
	}
	x.exercise.Seq, x.ops = x.exercise.Seq[:1], [4][][]float64{{one(1)}, {one(2)}, {one(3)}, {one(4)}}
	x.contend(c, &executor.LinkProfile{})
	for l := range c.Layers {
		if *c.Layers[l].ForwardBeside != (chain.Beside{2, 3, 4}) {
			t.Errorf("layer %d: %v", l+1, *c.Layers[l].ForwardBeside)
		}
	}
	// A window of the last two layers but one, whose head has two more, of which the second is none of the chain.
	x.exercise.first, x.exercise.count = 1, 1
	x.exercise.Seq = schedule.Sequence{{Kind: f, Layer: 1}, {Kind: f, Layer: 2}, {Kind: f, Layer: 3}}
	x.ops = [4][][]float64{{one(1), one(1), one(1)}, {one(2), one(7), one(7)}, {one(3), one(7), one(7)}, {one(4), one(7), one(7)}}
	x.contend(c, &executor.LinkProfile{})
	for l := range c.Layers {
		if *c.Layers[l].ForwardBeside != (chain.Beside{2, 3, 4}) {
			t.Errorf("layer %d beside a window with a head: %v", l+1, *c.Layers[l].ForwardBeside)
		}
	}
	if *c.CopiesBeside != (chain.CopiesBeside{1, 1}) {
		t.Errorf("copies that were not measured %v", *c.CopiesBeside)
	}
}
