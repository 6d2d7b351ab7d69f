package executor

import (
	"encoding/json"
	"math"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// The reference ops are those beside which nothing is copied; their factor is the median over the steps.
func TestDriftIsThatOfOpsBesideNoCopy(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Layers: []chain.Layer{{ForwardS: 1, BackwardS: 2}, {ForwardS: 1, BackwardS: 2}}}
	seq := schedule.Sequence{
		{Kind: schedule.Offload, Layer: 1}, {Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.ForwardAll, Layer: 2},
		{Kind: schedule.Backward, Layer: 2}, {Kind: schedule.Backward, Layer: 1},
	}
	r := &Recent{}
	if f, n := Drift(r.Ops(c, seq)); f != 1 || n != 0 {
		t.Errorf("of no step %v of %v ops", f, n)
	}
	for _, slower := range []float64{3, 1.5, 1.25} { // F2 from 5 on, the copy until 5: only F1 is beside it
		at := []Interval{{0, 5}, {0, 5}, {5, 5 + slower}, {9, 9 + 2*slower}, {20, 20 + 2*slower}}
		r.Add(&Times{Sequence: 30, Update: 1, Intervals: at}, 0)
	}
	if f, n := Drift(r.Ops(c, seq)); f != 1.5 || n != 3 {
		t.Errorf("%v of %v ops, want 1.5 of 3", f, n)
	}
	r.Add(&Times{Intervals: []Interval{{0, 30}, {1, 2}, {3, 4}, {5, 6}, {7, 8}}}, 0) // everything beside the copy
	if f, _ := Drift(r.Ops(c, seq)); f != 1.5 {
		t.Errorf("with a step that has no reference %v", f)
	}
	if got := r.Times(); len(got) != 4 || got[0] != 31 || got[3] != 0 {
		t.Errorf("times %v", got)
	}
}

// A few short ops beside which nothing is copied say nothing of the machine.
func TestDriftOfTooFewOps(t *testing.T) {
	t.Parallel()
	step := []TimedOp{{Interval: Interval{0, 3}, Cost: 1}, {Interval: Interval{5, 40}}} // an op three times as slow, and a copy behind it
	for i := range 12 {
		at := 6 + float64(i)
		step = append(step, TimedOp{Interval: Interval{at, at + 1}, Cost: 1})
	}
	if f, n := Drift([][]TimedOp{step}); f != 1 || n != 0 {
		t.Errorf("one op of 13: drift %v of %v ops", f, n)
	}
	if f, n := Drift([][]TimedOp{step[:9]}); f != 3 || n != 1 {
		t.Errorf("one op of 8: drift %v of %v ops", f, n)
	}
}

// Costs of ops and the update drift; the chain that they are taken from stays as it was, and so do its link and contention.
func TestDriftedCosts(t *testing.T) {
	t.Parallel()
	discard, half := 0.5, 1.5
	c := &chain.Chain{
		Bandwidth: 7, CopiesBeside: &chain.CopiesBeside{2, 2}, Extra: map[string]json.RawMessage{UpdateField: json.RawMessage("0.25")},
		Layers: []chain.Layer{{ForwardS: 1, BackwardS: 2, DiscardForwardS: &discard, BackwardInputS: &half, ForwardBeside: &chain.Beside{1, 2, 3}}},
	}
	d := Drifted(c, 2)
	l := d.Layers[0]
	if l.ForwardS != 2 || l.BackwardS != 4 || *l.DiscardForwardS != 1 || *l.BackwardInputS != 3 || l.BackwardWeightS != nil || UpdateSeconds(d) != 0.5 {
		t.Errorf("%+v, update %v", l, UpdateSeconds(d))
	}
	if d.Bandwidth != 7 || *l.ForwardBeside != (chain.Beside{1, 2, 3}) || d.CopiesBeside == nil {
		t.Errorf("%+v", d)
	}
	if c.Layers[0].ForwardS != 1 || discard != 0.5 || half != 1.5 || math.Abs(UpdateSeconds(c)-0.25) > 0 {
		t.Errorf("the chain became %+v", c)
	}
}
