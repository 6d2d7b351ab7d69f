package offload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
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

// problem is a chain under a limit, with a link.
func problem(c *chain.Chain, memory int64, bandwidth float64, duplex bool) strategy.Problem {
	return strategy.Problem{Chain: c, Memory: memory, Link: schedule.Link{Bandwidth: bandwidth, Duplex: duplex}}
}

// judge solves problems and judges every answer: the sequence keeps the rules within the limit and recomputes
// nothing, or the error names the limit and a larger one. It remembers sequences on one link for the oracle.
type judge struct {
	t        testing.TB
	verdicts []plantest.Verdict
	accepted int
	refused  int
}

// makespan returns the simulated makespan of a strategy, NaN when it refuses the limit.
func (j *judge) makespan(name string, p strategy.Problem) float64 {
	j.t.Helper()
	seq, err := named(j.t, name).Solve(context.Background(), p)
	if refusal, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		if refusal.Strategy != name || refusal.Memory != p.Memory || refusal.Smallest <= p.Memory || refusal.Op.Layer < 1 ||
			refusal.LayerName != p.Chain.Layer(refusal.Op.Layer).Name {
			j.t.Fatalf("%s %s at %d: refusal %+v", name, p.Chain.Name, p.Memory, refusal)
		}
		j.refused++
		return math.NaN()
	}
	if err != nil {
		j.t.Fatalf("%s %+v at %d: %v", name, p.Chain, p.Memory, err)
	}
	return j.accept(name, p, seq)
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
	computed, sent := 0, map[int]int{}
	for _, op := range seq {
		switch op.Kind {
		case schedule.ForwardAll, schedule.Backward:
			computed++
		case schedule.Offload, schedule.Prefetch:
			sent[op.Layer]++
		default:
			j.t.Fatalf("%s %s: %v in %v", name, p.Chain.Name, op, seq)
		}
	}
	for l, times := range sent {
		if times != 2 || p.Chain.Saved(l-1) == 0 {
			j.t.Fatalf("%s %s: the input of layer %d, %d bytes, moves %d times in %v", name, p.Chain.Name, l, p.Chain.Saved(l-1), times, seq)
		}
	}
	if computed != 2*p.Chain.Len() || r.Peak > p.Memory {
		j.t.Fatalf("%s %s at %d: %d compute ops, peak %d", name, p.Chain.Name, p.Memory, computed, r.Peak)
	}
	j.accepted++
	if !p.Link.Duplex {
		j.verdicts = append(j.verdicts, plantest.Verdict{Chain: p.Chain, Ops: seq, Memory: p.Memory, Bandwidth: p.Link.Bandwidth, Makespan: r.Makespan, Peak: r.Peak})
	}
	return r.Makespan
}

// oracle lets the independent checker judge at most so many of the sequences seen, evenly picked.
func (j *judge) oracle(t *testing.T, most int) {
	var sample []plantest.Verdict
	for i := 0; i < len(j.verdicts); i += 1 + len(j.verdicts)/most {
		sample = append(sample, j.verdicts[i])
	}
	plantest.Oracle(t, sample)
	t.Logf("%d of %d sequences given to the oracle; %d limits refused", len(sample), j.accepted, j.refused)
}

// randomChain makes a small chain with whole seconds and bytes; sizes and times may be 0.
func randomChain(rng *rand.Rand, n int) *chain.Chain {
	size := func(below int64) int64 { return rng.Int64N(below) }
	c := &chain.Chain{Name: "random", InputBytes: size(9)}
	overheads := size(3) * 8
	for l := range n {
		out := size(9)
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprintf("layer%d", l+1), ForwardS: float64(size(8)), BackwardS: float64(size(8)),
			OutputBytes: out, SavedBytes: out + size(9), GradientBytes: size(9),
			ForwardOverheadBytes: size(1 + overheads), BackwardOverheadBytes: size(1 + overheads),
		})
	}
	return c
}

// limitsOf returns the smallest limit of a chain for offloading, and the peak of store-all.
func limitsOf(t testing.TB, c *chain.Chain) (smallest, peak int64) {
	t.Helper()
	k, err := newCosts(problem(c, 0, 1, false))
	if err != nil {
		t.Fatal(err)
	}
	least, _ := k.smallest()
	return int64(least), int64(k.peak())
}
