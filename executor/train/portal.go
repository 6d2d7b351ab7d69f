package train

import (
	"context"
	"errors"
	"math"
	"slices"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/pipeline"
)

// straight gives a plan the portals of its stages, and lets the strategy plan for the shorter messages, where it then has the
// same stages. The plan stays what it is where no skip passes a stage, or where the portals would cost something.
func (p *pipePlanner) straight(ctx context.Context, platform *pipeline.Platform, plain *JobPlan) (*JobPlan, error) {
	portals := pipe.Portals(p.job.Work.Model, plain.Stages)
	if len(portals) == 0 {
		return plain, nil
	}
	best := plain
	for _, plan := range []*pipeline.Plan{plain.Plan, p.again(ctx, platform, plain.Plan, portals)} {
		for _, back := range []pipeline.Return{pipeline.Late, pipeline.Soon} {
			if plan == nil {
				continue
			}
			found, err := p.routed(platform, plan, portals, back)
			if err != nil {
				return nil, err
			}
			if found != nil && found.costsNothing(plain) && (best == plain || found.better(best)) {
				best = found
			}
		}
	}
	return best, ctx.Err()
}

// routed returns a plan with portals and what it takes; nil where the links have no time for them, or a device no memory.
func (p *pipePlanner) routed(platform *pipeline.Platform, plan *pipeline.Plan, portals []pipeline.Portal, back pipeline.Return) (*JobPlan, error) {
	plan, err := pipeline.WithPortals(p.chain, platform, plan, portals, back)
	if invalid := (*pipeline.InvalidError)(nil); errors.Is(err, pipeline.ErrNoRoom) || errors.As(err, &invalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.measured(platform, plan)
}

// again returns the strategy's plan for the same stages and messages without what passes by portals; nil when it has none.
func (p *pipePlanner) again(ctx context.Context, platform *pipeline.Platform, plan *pipeline.Plan, portals []pipeline.Portal) *pipeline.Plan {
	o := p.q.Options
	if p.q.Strategy.Type != pipeline.Partitioner {
		o.Stages = slices.Clone(plan.Stages)
		for s := range o.Stages {
			o.Stages[s].Ops, o.Stages[s].LastOps = nil, nil
		}
	}
	out, err := p.solve(ctx, pipeline.Straight(p.chain, plan.Stages, portals), platform, o)
	same := func(a, b pipeline.Stage) bool {
		return a.First == b.First && a.Last == b.Last && slices.Equal(a.Devices, b.Devices)
	}
	if err != nil || !slices.EqualFunc(out.Stages, plan.Stages, same) {
		return nil
	}
	return out
}

// costsNothing reports whether a plan is as fast as another, up to rounding, with no larger arena.
func (p *JobPlan) costsNothing(than *JobPlan) bool {
	a, _ := p.extent()
	b, _ := than.extent()
	return a <= b && p.PredictedSeconds() <= than.PredictedSeconds()*(1+1e-9)
}

// better reports whether a plan is faster than another, or else has smaller arenas.
func (p *JobPlan) better(than *JobPlan) bool {
	if s, t := p.PredictedSeconds(), than.PredictedSeconds(); math.Abs(s-t) > 1e-9*t {
		return s < t
	}
	a, _ := p.extent()
	b, _ := than.extent()
	return a < b
}
