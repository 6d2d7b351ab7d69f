package offload

// tflms: the first activations are offloaded, each prefetch is issued a fixed number of ops ahead, and no op is ever
// delayed to wait for memory.
//
// Paper: TFLMS rewrites a graph before its costs are known. Its two parameters are the number of tensors to offload and
// how far ahead to prefetch; as in the thesis of A. Shilova, section 3.4.1, all their values are tried and the best kept.
// The rewritten graph knows no memory limit: a pair of values serves only if it stays within the limit by itself. So
// tflms needs more memory than the other strategies, and how much depends on the bandwidth. O(L^2) simulations.

import (
	"context"
	"math"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func solveTFLMS(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	k, err := newCosts(p)
	if err != nil {
		return nil, err
	}
	s, err := newSearch(k, p)
	if err != nil {
		return nil, err
	}
	t := tflms{search: s, lowest: candidate{peak: math.MaxInt64}}
	if err := t.run(ctx); err != nil {
		return nil, err
	}
	if s.best.seq != nil {
		return s.best.seq, nil
	}
	return nil, t.infeasible(p)
}

// tflms keeps, beside the best candidate within the limit, the one with the lowest peak.
type tflms struct {
	*search
	lowest candidate
}

func (t *tflms) run(ctx context.Context) error {
	for count := range t.n + 1 {
		away := t.first(count)
		if t.best.seq != nil && t.seconds(t.evaluate(away)) > t.best.makespan {
			continue // too slow even with fractional communications
		}
		for ahead := range 2*t.n - count {
			if err := ctx.Err(); err != nil {
				return err
			}
			for i := range count {
				t.at[i] = max(2*t.n-(i+1)-ahead, count)
			}
			if err := t.trial(away); err != nil {
				return err
			}
			if count == 0 || t.at[0] == count {
				break // all stand right behind the last offload
			}
		}
	}
	return nil
}

// trial simulates without a limit, so that nothing waits for memory.
func (t *tflms) trial(away []bool) error {
	seq := t.build(away)
	r, err := t.sim.Run(seq, schedule.Limits{Memory: schedule.NoLimit, Link: t.limits.Link})
	if err != nil {
		return err
	}
	if r.Peak < t.lowest.peak {
		t.lowest = newCandidate(seq, away, r)
	}
	if r.Peak <= t.limits.Memory && t.best.slower(r) {
		t.best = newCandidate(seq, away, r)
	}
	return nil
}

func (t *tflms) infeasible(p strategy.Problem) error {
	r, err := t.sim.Run(t.lowest.seq, schedule.Limits{Memory: schedule.NoLimit, Link: t.limits.Link})
	if err != nil {
		return err
	}
	e := &pipeline.InfeasibleError{Strategy: "tflms", Memory: p.Memory, Smallest: r.Peak}
	if r.PeakOp >= 0 {
		e.Op = t.lowest.seq[r.PeakOp]
		e.LayerName = p.Chain.Layer(e.Op.Layer).Name
	}
	return e
}
