package auto

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"plimsoll/internal/shared"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// refusedThough returns the problems of known answers that have a sequence and that auto refuses.
func refusedThough(t *testing.T) (all []strategy.Problem) {
	var file vectors
	readJSON(t, shared.Path(t, "vectors", "combined_small.json"), &file)
	for _, c := range file.Cases {
		if c.Name != "v008" && c.Name != "v019" {
			continue
		}
		for _, l := range c.Limits {
			p := strategy.Problem{Chain: c.Chain, Memory: l.Memory, Link: schedule.Link{Bandwidth: l.Bandwidth}}
			_, err := Plan(t.Context(), p, Options{})
			if errors.As(err, new(*pipeline.InfeasibleError)) && !math.IsInf(orInfinite(l.Optimum), 1) {
				all = append(all, p)
			}
		}
	}
	return all
}

// All members refuse these limits, though some plan fits. At most of the limits, a search finds a plan, and the same plan for the same
// number of steps. At the others, the refusal says how much was tried.
// Only this test finds a search that misses plans where all members refuse, or answers otherwise the second time.
func TestSearchOfRefusedLimits(t *testing.T) {
	t.Parallel()
	j := &judge{t: t}
	problems, found := refusedThough(t), 0
	for _, p := range problems {
		var refusal *pipeline.InfeasibleError
		r, err := Plan(t.Context(), p, Options{Steps: 60000})
		switch {
		case errors.As(err, &refusal):
			if refusal.Tried < 60000 || refusal.Smallest <= p.Memory || !refusal.Found {
				t.Errorf("%s at %d: %+v", p.Chain.Name, p.Memory, refusal)
			}
			continue
		case err != nil:
			t.Fatal(err)
		}
		j.judge(p, r)
		again, err := Plan(t.Context(), p, Options{Steps: 60000})
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%s at %d: %v, then %v (%v)", p.Chain.Name, p.Memory, r, again, err)
		}
		found++
	}
	t.Logf("%d of %d found", found, len(problems))
	if len(problems) != 9 || found < 6 {
		t.Errorf("%d of %d found, want 6 of 9", found, len(problems))
	}
	j.oracle()
}

// Below what any sequence needs nothing is tried, and a search ends with the time that it is given.
func TestSearchEnds(t *testing.T) {
	t.Parallel()
	problems := refusedThough(t)
	p := problems[len(problems)-2] // at which no search has found any
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Plan(ctx, p, Options{Steps: math.MaxInt}); !errors.As(err, new(*pipeline.InfeasibleError)) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	p.Memory = 1
	var refusal *pipeline.InfeasibleError
	if _, err := Plan(t.Context(), p, Options{Steps: math.MaxInt}); !errors.As(err, &refusal) || refusal.Tried != 0 {
		t.Errorf("%v", err)
	}
}
