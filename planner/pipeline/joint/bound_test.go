package joint

import (
	"path/filepath"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// TestBoundOfSumsInTrees: plans that add up gradients along several trees of links take longer than the bound.
func TestBoundOfSumsInTrees(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bound", "bound4"} {
		file := func(part string) string { return filepath.Join("testdata", "bound", name+"."+part+".json") }
		c, err := chain.Read(file("c"))
		if err != nil {
			t.Fatal(err)
		}
		platform, err := pipeline.ReadPlatform(file("f"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pipeline.Read(file("p"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := pipeline.Check(c, platform, plan)
		if err != nil || report.LowerBound != 0 {
			t.Fatalf("%s: %+v, %v", name, report, err)
		}
		r := pipeline.Request{Chain: c, Platform: platform}
		r.Versions, r.Accounting = plan.Versions, plan.Accounting
		own, err := solve(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if bound := own.Predicted.LowerBound; bound > report.PerMinibatch || bound < report.PerMinibatch/2 {
			t.Errorf("%s: a bound of %v, the plan takes %v", name, bound, report.PerMinibatch)
		}
	}
}
