package residency

import (
	"context"
	"errors"
	"fmt"

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
// *pipeline.InfeasibleError, those of Solve.
func solve(ctx context.Context, name, shown string, r pipeline.Request) (*pipeline.Plan, error) {
	if err := validate(shown, r); err != nil {
		return nil, err
	}
	link, limits := r.Platform.CycleLimits()
	found, err := Solve(ctx, Request{Chain: r.Chain, Link: link, Limits: limits, Microbatches: r.Microbatches, Strategy: name})
	if small := (*InfeasibleError)(nil); errors.As(err, &small) {
		return nil, &pipeline.InfeasibleError{
			Strategy: shown, Memory: small.Limit, Smallest: small.Smallest, Found: true, Devices: 1,
			Op: schedule.Op{Kind: small.Op.Kind, Layer: small.Op.Layer}, LayerName: small.Layer,
		}
	}
	if err != nil {
		return nil, err
	}
	p, err := pipeline.PlanCycle(r.Chain, shown, found.Sequence, r.Platform)
	if err != nil {
		return nil, err
	}
	if found.Strategy != name && found.Strategy != Auto {
		p.Winner = found.Strategy
	}
	period, err := Bound(Request{Chain: r.Chain, Link: link, Limits: limits, Microbatches: r.Microbatches})
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
	link, limits := r.Platform.CycleLimits()
	seq, peak, err := Least(ctx, Request{Chain: r.Chain, Link: link, Limits: limits, Microbatches: r.Microbatches}, level)
	if err != nil {
		return nil, err
	}
	return pipeline.PlanCycle(r.Chain, shown, seq, unlimitedHost(r.Platform.WithMemory(peak)))
}

// unlimitedHost returns a platform without a limit of host memory.
func unlimitedHost(p *pipeline.Platform) *pipeline.Platform {
	out := *p
	out.HostMemory = 0
	return &out
}
