package planner_test

import (
	"context"
	"slices"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// The chain of a small GPT that tools/plimsoll_export.py wrote can be planned down to 40 % of store-all's peak.
func TestChainOfPyTorch(t *testing.T) {
	t.Parallel()
	c, err := chain.Read("../tools/testdata/gpt.json")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Layers); n != 11 || c.Layers[10].Name != "loss" || c.Layers[0].WeightBytes == 0 {
		t.Fatalf("%d layers: %+v", n, c.Layers)
	}
	if slices.ContainsFunc(c.Layers, func(l chain.Layer) bool { return l.SavedBytes <= l.OutputBytes || l.ForwardS <= 0 || l.BackwardS <= 0 }) {
		t.Errorf("a layer without costs: %+v", c.Layers)
	}
	s, err := planner.Lookup("rotor-exact")
	if err != nil {
		t.Fatal(err)
	}
	all, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range []int64{100, 70, 50, 40} {
		p, err := s.Solve(context.Background(), strategy.Problem{Chain: c, Memory: all.Peak * share / 100}.Request())
		if err != nil {
			t.Fatalf("%d %%: %v", share, err)
		}
		if repeats := len(p.Sequence()) > 2*len(c.Layers); repeats != (share < 100) {
			t.Errorf("%d %%: %v", share, p.Sequence())
		}
	}
}
