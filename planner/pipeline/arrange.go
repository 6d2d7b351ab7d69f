package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"plimsoll/planner/chain"
)

// arrange lays a plan out; that of a sequence as its forward and its backward part. Errors: those of checkSequence, *InvalidError, ErrPlan, ErrPlatform, those of the chain.
func arrange(c *chain.Chain, p *Platform, plan *Plan) (_ *layout, err error) {
	if plan.RunsSequence() {
		if plan, err = plan.parts(c, p); err != nil {
			return nil, err
		}
	} else if err := (Request{Chain: c, Platform: p}).Validate(); err != nil {
		return nil, err
	}
	l := &layout{
		chain: c, platform: p, plan: plan,
		repeats: plan.Repeats(), split: plan.Split(),
		at: map[place]*job{}, gates: map[gate]*job{}, lengths: map[place]ticks{},
	}
	a := &arranger{l}
	if err := a.usable(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	for _, step := range []func(){a.stages, a.findTies, a.portals, a.measureOps, a.halves, a.measure, a.tasks, a.complete, a.replicas, a.boundaries, a.synchronizations, func() { checkFetches(a) }} {
		if step(); l.unfit != nil || len(l.broken) > 0 {
			return nil, cmp.Or(l.unfit, l.broken.err())
		}
	}
	return l, nil
}

// usable refuses a plan whose kind is not known.
func (a *arranger) usable() error {
	p := a.plan
	switch {
	case len(p.Stages) == 0:
		return fmt.Errorf("it has no stages")
	case p.Accounting != "" && p.Accounting != Inputs && p.Accounting != Saved:
		return fmt.Errorf("field \"accounting\" is %q, which is neither %q nor %q", p.Accounting, Inputs, Saved)
	case p.IsFlush() && p.Microbatches < 1:
		return fmt.Errorf("field \"microbatches\" is %d: a flush plan has at least 1", p.Microbatches)
	case !(p.Period >= 0 && p.Period <= math.MaxFloat64) || p.Period == 0 && !p.IsFlush():
		return fmt.Errorf("field \"period_s\" is %g: a periodic plan has a time above 0", p.Period)
	case p.MinibatchesPerPeriod < 0:
		return fmt.Errorf("field \"minibatches_per_period\" is %d, which is not at least 1", p.MinibatchesPerPeriod)
	}
	return cmp.Or(a.timings(), a.versions(), a.shards())
}

// timings refuses those that are not of the tasks, and times that mean nothing.
func (a *arranger) timings() error {
	if n := len(a.plan.Timings); n != 0 && n != len(a.plan.Tasks) {
		return fmt.Errorf("%d timings for %d tasks", n, len(a.plan.Tasks))
	}
	for i, t := range a.plan.Timings {
		if t != nil && !(t.Early >= 0 && t.Early <= t.Length && t.Length <= math.MaxFloat64) {
			return fmt.Errorf("task %d takes %g s, of which %g s before its gradient", i, t.Length, t.Early)
		}
	}
	return nil
}

// arrangeBare lays out a plan that has its messages between replicas yet to come.
func arrangeBare(c *chain.Chain, p *Platform, bare *Plan) (*layout, error) {
	alone := *bare
	alone.Zero = ZeroNothing
	l, err := arrange(c, p, &alone)
	if err == nil {
		l.plan = bare
	}
	return l, err
}

// bare returns a copy of a plan without messages between replicas.
func (p *Plan) bare() *Plan {
	bare := *p
	bare.Synchronization = nil
	return &bare
}
