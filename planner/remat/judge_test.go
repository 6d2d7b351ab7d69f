package remat

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// named returns the registered strategy.
func named(t testing.TB, name string) strategy.Sequencer {
	t.Helper()
	for _, s := range Strategies() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no strategy %s", name)
	return strategy.Sequencer{}
}

// judge solves problems and judges every answer: the sequence keeps the rules within the limit, or the error names
// the limit, a smallest limit above it and an op. It remembers the sequences for the oracle.
type judge struct {
	t        *testing.T
	verdicts []plantest.Verdict
	refused  int
}

// makespan returns the simulated makespan of a strategy, NaN when it refuses the limit.
func (j *judge) makespan(name string, p strategy.Problem) float64 {
	j.t.Helper()
	seq, err := named(j.t, name).Solve(context.Background(), p)
	if refusal, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		if refusal.Strategy != name || refusal.Memory != p.Memory || refusal.Smallest <= p.Memory || refusal.LayerName != p.Chain.Layer(max(1, refusal.Op.Layer)).Name {
			j.t.Fatalf("%s %s at %d: refusal %+v", name, p.Chain.Name, p.Memory, refusal)
		}
		j.refused++
		return math.NaN()
	}
	if err != nil {
		j.t.Fatalf("%s %s at %d: %v", name, p.Chain.Name, p.Memory, err)
	}
	return j.accept(name, p, seq)
}

func (j *judge) accept(name string, p strategy.Problem, seq schedule.Sequence) float64 {
	j.t.Helper()
	if err := schedule.Verify(p.Chain, seq); err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory})
	if err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	j.verdicts = append(j.verdicts, plantest.Verdict{Chain: p.Chain, Ops: seq, Memory: p.Memory, Makespan: r.Makespan, Peak: r.Peak})
	return r.Makespan
}

// expect compares with a known optimum, nil where no sequence exists.
func (j *judge) expect(name string, p strategy.Problem, want *float64) {
	j.t.Helper()
	got := j.makespan(name, p)
	if want == nil && !math.IsNaN(got) || want != nil && !plantest.Near(got, *want) {
		j.t.Errorf("%s %s at %d: makespan %v, want %v", name, p.Chain.Name, p.Memory, got, show(want))
	}
}

func show(x *float64) string {
	if x == nil {
		return "infeasible"
	}
	return fmt.Sprint(*x)
}

// oracle lets the independent checker judge every sequence seen so far. It knows no separate cost of forwards that
// save nothing.
func (j *judge) oracle() {
	plantest.Oracle(j.t, j.verdicts)
	j.t.Logf("%d limits refused", j.refused)
}
