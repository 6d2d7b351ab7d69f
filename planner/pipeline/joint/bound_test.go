package joint

import (
	"path/filepath"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// TestBoundOfSumsInTrees: plans that add up gradients along several trees of links take longer than the bound, which is a part of their time at
// least.
func TestBoundOfSumsInTrees(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, chain string
		part        float64
	}{
		{"bound", file("bound", "c"), 0.5}, {"bound4", file("bound4", "c"), 0.5},
		{"gnmt8", filepath.Join("..", "..", "..", "docs", "chains", "gnmt.json"), 0.3}, // eight replicas, where three stages are faster
	} {
		c, err := chain.Read(x.chain)
		if err != nil {
			t.Fatal(err)
		}
		platform, err := pipeline.ReadPlatform(file(x.name, "f"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pipeline.Read(file(x.name, "p"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := pipeline.Check(c, platform, plan)
		if err != nil || report.LowerBound != 0 {
			t.Fatalf("%s: %+v, %v", x.name, report, err)
		}
		r := pipeline.Request{Chain: c, Platform: platform}
		r.Versions, r.Accounting = plan.Versions, plan.Accounting
		own, err := solve(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if bound := own.Predicted.LowerBound; bound > report.PerMinibatch || bound < report.PerMinibatch*x.part {
			t.Errorf("%s: a bound of %v, the plan takes %v", x.name, bound, report.PerMinibatch)
		}
	}
}

func file(name, part string) string { return filepath.Join("testdata", "bound", name+"."+part+".json") }
