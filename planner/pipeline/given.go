package pipeline

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
)

// Given returns a plan that somebody else made as a strategy: it gives that plan, as it is, to whoever asks for one for a chain and
// a platform on which Check accepts it. Solve fails with an *InfeasibleError where the plan needs more memory, else with the
// errors of Check.
func Given(plan *Plan) Strategy {
	name := cmp.Or(plan.Strategy, "given")
	s := Strategy{
		Name: name, Type: Periodic,
		Summary: "a plan that is given", Paper: "the plan", Section: "the whole file",
		Solve: func(_ context.Context, r Request) (*Plan, error) { return given(name, plan, r) },
	}
	if plan.IsFlush() {
		s.Type, s.Microbatches = Flushing, plan.Microbatches
	}
	return s
}

// given returns a copy of a plan with its platform and what it costs there.
func given(name string, plan *Plan, r Request) (*Plan, error) {
	p := *plan
	p.Strategy, p.Platform, p.Extra = name, r.Platform, maps.Clone(plan.Extra)
	report, err := Check(r.Chain, r.Platform, &p)
	if report != nil {
		p.PerDevicePeak, p.Predicted.Makespan = report.PerDevicePeak, report.Makespan
	}
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) && invalid.OnlyMemory() && report != nil {
		return nil, &InfeasibleError{Strategy: name, Reason: invalid.Violations[0].Reason, Smallest: slices.Max(report.PerDevicePeak), Best: &p}
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}
