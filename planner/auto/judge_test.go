package auto

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func orInfinite(x *float64) float64 {
	if x == nil {
		return math.Inf(1)
	}
	return *x
}

// judge plans and judges what auto reports. It remembers the sequences for the oracle.
type judge struct {
	t        *testing.T
	verdicts []plantest.Verdict
}

// plan returns auto's report, nil when it refuses the limit.
func (j *judge) plan(p strategy.Problem) *Report {
	j.t.Helper()
	r, err := Plan(context.Background(), p, Options{})
	if refusal, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		if refusal.Strategy != Name || refusal.Memory != p.Memory || refusal.Smallest <= p.Memory {
			j.t.Fatalf("%s at %d: refusal %+v", p.Chain.Name, p.Memory, refusal)
		}
		return nil
	}
	if err != nil {
		j.t.Fatalf("%s at %d, %+v: %v", p.Chain.Name, p.Memory, p.Link, err)
	}
	j.judge(p, r)
	return r
}

func (j *judge) judge(p strategy.Problem, r *Report) {
	j.t.Helper()
	got, err := schedule.Simulate(p.Chain, r.Sequence, schedule.Limits{Memory: p.Memory, Link: p.Link})
	if err != nil {
		j.t.Fatalf("%s at %d: %v in %v", p.Chain.Name, p.Memory, err, r.Sequence)
	}
	if got.Makespan != r.Makespan || got.Peak != r.Peak || got.Peak > p.Memory || swallows(r.Sequence) {
		j.t.Fatalf("%s at %d: %v takes %v and %d, reported %v and %d", p.Chain.Name, p.Memory, r.Sequence, got.Makespan, got.Peak, r.Makespan, r.Peak)
	}
	if r.Bound > r.Makespan*(1+1e-9) {
		j.t.Errorf("%s at %d, %+v: %v is below the bound %v: %v", p.Chain.Name, p.Memory, p.Link, r.Makespan, r.Bound, r.Sequence)
	}
	for _, c := range r.Candidates {
		if (c.Sequence == nil) == (c.Reason == "") || c.Sequence != nil && c.Makespan < r.Makespan {
			j.t.Errorf("%s at %d, %+v: candidate %+v beside %v", p.Chain.Name, p.Memory, p.Link, c, r.Makespan)
		}
	}
	if !p.Link.Duplex { // the oracle knows one link
		j.verdicts = append(j.verdicts, plantest.Verdict{
			Chain: p.Chain, Ops: r.Sequence, Memory: p.Memory, Bandwidth: p.Link.Bandwidth, Makespan: r.Makespan, Peak: r.Peak,
		})
	}
}

func (j *judge) oracle() { plantest.Oracle(j.t, j.verdicts) }
