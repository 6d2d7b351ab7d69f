package planner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func TestLookup(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Strategies() {
		if s.Name == "" || s.Summary == "" || s.Paper == "" || s.Section == "" || s.Solve == nil || seen[s.Name] {
			t.Errorf("incomplete or double entry %+v", s)
		}
		seen[s.Name] = true
		if got, err := Lookup(s.Name); err != nil || got.Name != s.Name {
			t.Errorf("Lookup(%q) = %q, %v", s.Name, got.Name, err)
		}
	}
	_, err := Lookup("rotr")
	if !errors.Is(err, ErrUnknownStrategy) {
		t.Fatalf("Lookup of an unknown name: %v", err)
	}
	for _, name := range append(Names(), `"rotr"`) {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	if len(Names()) != 6 {
		t.Errorf("%d strategies, want 6", len(Names()))
	}
}

func TestSolve(t *testing.T) {
	c := &chain.Chain{Name: "two", InputBytes: 1, Layers: []chain.Layer{
		{Name: "one", ForwardS: 1, BackwardS: 2, OutputBytes: 3, SavedBytes: 4, GradientBytes: 3},
		{Name: "loss", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1},
	}}
	solved := 0
	for _, s := range Strategies() {
		plan, err := Solve(context.Background(), s, strategy.Problem{Chain: c, Memory: 12})
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if plan.Strategy != s.Name || plan.Limits.Memory != 12 || plan.Predicted.Makespan < 5 || plan.Predicted.Peak > 12 {
			t.Errorf("%s: plan %+v", s.Name, plan)
		}
		solved++
		_, err = Solve(context.Background(), s, strategy.Problem{Chain: c, Memory: 5})
		if _, ok := errors.AsType[*strategy.InfeasibleError](err); !ok {
			t.Errorf("%s: no refusal of 5 bytes", s.Name)
		}
	}
	if solved != 6 {
		t.Errorf("%d strategies solved, want 6", solved)
	}
}

// A strategy that returns nonsense is our own bug, and is caught.
func TestSolveCatchesBadSequences(t *testing.T) {
	c := &chain.Chain{Layers: []chain.Layer{{Name: "loss"}}}
	broken := strategy.Strategy{Name: "broken", Solve: func(context.Context, strategy.Problem) (schedule.Sequence, error) {
		return schedule.Sequence{{Kind: schedule.Backward, Layer: 1}}, nil
	}}
	if _, err := Solve(context.Background(), broken, strategy.Problem{Chain: c}); err == nil || !strings.HasPrefix(err.Error(), "BUG: broken") {
		t.Errorf("got %v", err)
	}
}
