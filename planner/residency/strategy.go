package residency

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Search is the name, among all strategies, of the one that searches.
const Search = "residency"

// ForPlans returns the strategies as those of plans for one device that says where weights, gradients and state are.
func ForPlans() (all []pipeline.Strategy) {
	for _, s := range Strategies() {
		x := pipeline.Strategy{Name: s.Name, Type: pipeline.Cyclic, Summary: s.Summary, Paper: s.Source, Section: "the design, section 8"}
		if s.Name == Auto {
			x.Name, x.Paper = Search, "Plimsoll"
		}
		x.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			return solve(ctx, s.Name, x.Name, r)
		}
		if s.Name == Auto {
			for _, level := range []Sparing{AllAway, NoActivations} {
				x.Least = append(x.Least, func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
					return least(ctx, x.Name, level, r)
				})
			}
		}
		all = append(all, x)
	}
	return all
}

// solve finds the plan of a strategy, by the name that it has among all. Errors: those of Request.Validate, pipeline.ErrPlatform,
// *pipeline.InfeasibleError, *HostError, those of Solve.
func solve(ctx context.Context, name, shown string, r pipeline.Request) (*pipeline.Plan, error) {
	if err := validate(shown, r); err != nil {
		return nil, err
	}
	asked := requestOf(r)
	asked.Strategy = name
	found, err := Solve(ctx, asked)
	if small := (*InfeasibleError)(nil); errors.As(err, &small) {
		return nil, &pipeline.InfeasibleError{
			Strategy: shown, Memory: small.Limit, Smallest: small.Smallest, Found: true, Devices: 1,
			Op: schedule.Op{Kind: small.Op.Kind, Layer: small.Op.Layer}, LayerName: small.Layer,
		}
	}
	if small := (*HostError)(nil); errors.As(err, &small) {
		return nil, &HostError{Strategy: shown, Limit: small.Limit, Smallest: small.Smallest}
	}
	if err != nil {
		return nil, err
	}
	p, err := planOf(r, shown, found.Sequence, r.Platform)
	if err != nil {
		return nil, err
	}
	if found.Strategy != name && found.Strategy != Auto {
		p.Winner = found.Strategy
	}
	period, err := Bound(requestOf(r))
	p.Predicted.LowerBound = period / float64(p.Microbatches)
	return p, err
}

// validate refuses requests for several devices. Errors: those of Request.Validate, pipeline.ErrPlatform.
func validate(shown string, r pipeline.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.Platform.Devices != 1 {
		return fmt.Errorf("%w: %s plans for one device, there are %d", pipeline.ErrPlatform, shown, r.Platform.Devices)
	}
	return nil
}

// least plans the sequence of Least, whatever memory the device and the host have. Errors: those of validate, Least and pipeline.PlanCycle.
func least(ctx context.Context, shown string, level Sparing, r pipeline.Request) (*pipeline.Plan, error) {
	if err := validate(shown, r); err != nil {
		return nil, err
	}
	seq, peak, err := Least(ctx, requestOf(r), level)
	if err != nil {
		return nil, err
	}
	return planOf(r, shown, seq, unlimitedHost(r.Platform.WithMemory(peak)))
}

// requestOf returns the request to this package.
func requestOf(r pipeline.Request) Request {
	link, limits := r.Platform.CycleLimits()
	limits.UpdatesLast = r.UpdatesLast
	return Request{Chain: r.Chain, Link: link, Limits: limits, Microbatches: r.Microbatches, Evaluations: r.Trials}
}

// planOf returns the plan of a sequence on a platform. Errors: those of Plan.PredictCycle.
func planOf(r pipeline.Request, shown string, seq cycle.Sequence, on *pipeline.Platform) (*pipeline.Plan, error) {
	p := pipeline.NewCycle(r.Chain.Name, shown, seq, on)
	p.UpdatesLast = r.UpdatesLast
	return p, p.PredictCycle(r.Chain)
}

// unlimitedHost returns a platform without a limit of host memory.
func unlimitedHost(p *pipeline.Platform) *pipeline.Platform {
	out := *p
	out.HostMemory = 0
	return &out
}
