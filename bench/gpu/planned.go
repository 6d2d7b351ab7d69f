package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// planned is a plan within a limit, and the steps that were run along it.
type planned struct {
	*pipeline.Plan
	timing
	seconds float64                 // predicted, of a step with its update
	bytes   int64                   // predicted, of the peak, weights included
	small   *executor.TooSmallError // the limit is: there is no plan
}

// along plans a model with a strategy and runs steps along the plan.
func (p *part) along(ctx context.Context, w *executor.Workload, c *chain.Chain, name string, limit int64, opt strategy.Options) (out planned, err error) {
	s, err := planner.Lookup(name)
	if err != nil {
		return out, err
	}
	if out.Plan, err = executor.Plan(ctx, w, c, s, limit, opt); errors.As(err, &out.small) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.seconds, out.bytes = out.Predicted.Makespan+executor.UpdateSeconds(c), out.Plan.Peak()+w.StaticBytes()
	out.timing, err = p.timeSteps(w, pipe.Costs{Chain: c, Platform: out.Platform}, out.Plan, limit)
	return out, err
}

// refused says in a table why there is no plan, "" where there is one.
func (t *planned) refused() string {
	if t.small == nil {
		return ""
	}
	return fmt.Sprintf("needs %s", units.Bytes(t.small.Smallest))
}

// storeAll runs steps that recompute nothing, in an arena as small as they can have; the peak is theirs.
func (p *part) storeAll(w *executor.Workload) (t timing, peak int64, err error) {
	if peak, err = w.PeakBytes(w.StoreAll()); err != nil {
		return t, 0, err
	}
	t, err = p.timeAlone(w, w.StoreAll())
	return t, peak, err
}

// timeSteps runs a plan on a fresh device, in an arena of limit bytes.
func (p *part) timeSteps(w *executor.Workload, costs pipe.Costs, plan *pipeline.Plan, limit int64) (t timing, err error) {
	stop := p.watch()
	defer func() { t.NVML = stop() }()
	opt := pipe.Options{Limits: []int64{limit}}
	needs, err := pipe.Needs(w, costs, plan, opt)
	if err != nil {
		return t, err
	}
	e, err := p.start(w, p.device, costs, plan, opt)
	if err != nil {
		return t, err
	}
	t, err = e.time(p.steps())
	t.Peak, t.Extent = needs[0].Peak, needs[0].Extent
	return t, cmp.Or(err, e.close())
}

// timeAlone is timeSteps of a sequence without transfers, in an arena as small as it can have.
func (p *part) timeAlone(w *executor.Workload, seq schedule.Sequence) (t timing, err error) {
	limit, err := w.Extent(seq)
	if err != nil {
		return t, err
	}
	costs, plan := pipe.Unmeasured(w, seq)
	return p.timeSteps(w, costs, plan, limit)
}

// steps says how many do not count, and how many do.
func (p *part) steps() (warmup, steps int) {
	if p.tiny {
		return 1, 2
	}
	return 3, 10
}
