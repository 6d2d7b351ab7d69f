package pofo

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
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

func readChain(t testing.TB, name string) *chain.Chain {
	t.Helper()
	c, err := chain.Read(shared.Chains(t, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func problem(c *chain.Chain, memory int64, bandwidth float64) strategy.Problem {
	return strategy.Problem{Chain: c, Memory: memory, Link: schedule.Link{Bandwidth: bandwidth}}
}

// judge solves problems and judges every answer: the sequence keeps the rules within the limit, or the error names the
// limit, a smallest limit above it and an op. It remembers the sequences for the oracle.
type judge struct {
	t        *testing.T
	verdicts []plantest.Verdict
	refused  int
}

// makespan returns the simulated makespan of a strategy, infinite when it refuses the limit.
func (j *judge) makespan(s strategy.Sequencer, p strategy.Problem) float64 {
	j.t.Helper()
	seq, err := s.Solve(context.Background(), p)
	if refusal, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		if refusal.Strategy != s.Name || refusal.Memory != p.Memory || refusal.Smallest <= p.Memory || refusal.LayerName != p.Chain.Layer(max(1, refusal.Op.Layer)).Name {
			j.t.Fatalf("%s %s at %d: refusal %+v", s.Name, p.Chain.Name, p.Memory, refusal)
		}
		j.refused++
		return math.Inf(1)
	}
	if err != nil {
		j.t.Fatalf("%s %s at %d, %+v: %v", s.Name, p.Chain.Name, p.Memory, p.Link, err)
	}
	return j.accept(s.Name, p, seq)
}

func (j *judge) accept(name string, p strategy.Problem, seq schedule.Sequence) float64 {
	j.t.Helper()
	if err := schedule.Verify(p.Chain, seq); err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory, Link: p.Link})
	if err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	if !p.Link.Duplex { // the oracle knows one link
		j.verdicts = append(j.verdicts, plantest.Verdict{Chain: p.Chain, Ops: seq, Memory: p.Memory, Bandwidth: p.Link.Bandwidth, Makespan: r.Makespan, Peak: r.Peak})
	}
	return r.Makespan
}

// oracle lets the independent checker judge every sequence seen so far.
func (j *judge) oracle() {
	plantest.Oracle(j.t, j.verdicts)
	j.t.Logf("%d limits refused", j.refused)
}
