package planner

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range Sequences() {
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
	for _, name := range append(Names(), `"rotr"`, "auto") {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	if len(Names()) < 11 {
		t.Errorf("%d strategies, want 11 or more", len(Names()))
	}
}

func TestSolve(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "two", InputBytes: 1, Layers: []chain.Layer{
		{Name: "one", ForwardS: 1, BackwardS: 2, OutputBytes: 3, SavedBytes: 4, GradientBytes: 3},
		{Name: "loss", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1},
	}}
	solved, link := 0, schedule.Link{Bandwidth: 1}
	for _, s := range Sequences() {
		plan, err := s.Solve(context.Background(), strategy.Problem{Chain: c, Memory: 12, Link: link}.Request())
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if plan.Strategy != s.Name || plan.Limits().Memory != 12 || plan.Predicted.Makespan < 5 || plan.Peak() > 12 {
			t.Errorf("%s: plan %+v", s.Name, plan)
		}
		solved++
		_, err = s.Solve(context.Background(), strategy.Problem{Chain: c, Memory: 5, Link: link}.Request())
		if _, ok := errors.AsType[*pipeline.InfeasibleError](err); !ok {
			t.Errorf("%s: no refusal of 5 bytes", s.Name)
		}
	}
	if solved < 11 {
		t.Errorf("%d strategies solved, want 11 or more", solved)
	}
}

// A strategy that returns nonsense is our own bug, and is caught.
func TestSolveCatchesBadSequences(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Layers: []chain.Layer{{Name: "loss"}}}
	broken := strategy.Sequencer{Name: "broken", Solve: func(context.Context, strategy.Problem) (schedule.Sequence, error) {
		return schedule.Sequence{{Kind: schedule.Backward, Layer: 1}}, nil
	}}.Strategy()
	if _, err := broken.Solve(context.Background(), strategy.Problem{Chain: c}.Request()); err == nil || !strings.HasPrefix(err.Error(), "BUG: broken") {
		t.Errorf("got %v", err)
	}
}

// Without a link, For leaves out the strategies that need one, and exactly these refuse.
func TestFor(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "one", InputBytes: 1, Layers: []chain.Layer{{Name: "loss", ForwardS: 1, BackwardS: 1}}}
	if n := len(For(schedule.Link{Bandwidth: 1})); n != len(Sequences()) {
		t.Errorf("%d strategies with a link, %d in all", n, len(Sequences()))
	}
	needy := 0
	for _, s := range Sequences() {
		_, err := s.Solve(context.Background(), strategy.Problem{Chain: c, Memory: 100}.Request())
		if refused := errors.Is(err, offload.ErrLink); refused != NeedsLink(s.Name) || !refused && err != nil {
			t.Errorf("%s without a link: %v, needs one: %v", s.Name, err, NeedsLink(s.Name))
		}
		if NeedsLink(s.Name) {
			needy++
		}
	}
	if needy < 9 || len(For(schedule.Link{}))+needy != len(Sequences()) {
		t.Errorf("%d strategies need a link, %d of %d are left", needy, len(For(schedule.Link{})), len(Sequences()))
	}
}

// A curve falls, its points are what the strategy says at their memory, and the exact ones have every step.
func TestCurve(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	points, chains := 0, 10
	if testing.Short() {
		chains = 2
	}
	for range chains {
		c := plantest.Chain(rnd, 5)
		for _, s := range Sequences() {
			p := strategy.Problem{Chain: c, Link: schedule.Link{Bandwidth: 1}}
			curve, whole, err := Curve(context.Background(), s, p.Request(), 6, nil)
			if err != nil || len(curve) == 0 || whole != (exact[s.Name] != nil) {
				t.Fatalf("%s: %v, whole %v, %v", s.Name, curve, whole, err)
			}
			for i, at := range curve {
				points++
				r, err := schedule.Simulate(c, at.Sequence, schedule.Limits{Memory: at.Memory, Link: p.Link})
				if err != nil || r.Makespan != at.Makespan && !plantest.Near(r.Makespan, at.Makespan) || r.Peak != at.Memory || at.By == "" {
					t.Errorf("%s: point %+v simulates to %+v, %v", s.Name, at, r, err)
				}
				if i > 0 && (curve[i-1].Memory >= at.Memory || curve[i-1].Makespan <= at.Makespan) {
					t.Errorf("%s: %+v before %+v", s.Name, curve[i-1], at)
				}
			}
		}
	}
	if points < 30*chains {
		t.Errorf("only %d points", points)
	}
}
