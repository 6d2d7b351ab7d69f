package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"

	"plimsoll/planner/schedule"
)

// Given returns a plan that somebody else made as a strategy of that name. Solve returns the plan as it is where Check accepts it for the
// chain and the platform. A plan for one device must be for that chain and run within the limits. Solve fails with an *InfeasibleError where the plan needs more memory, else with the errors of Check, or those of Plan.For and schedule.Simulate.
func Given(name string, plan *Plan) Strategy {
	s := Strategy{
		Name: name, Type: Periodic,
		Summary: "a plan that is given", Paper: "the plan", Section: "the whole file",
		Solve: func(_ context.Context, r Request) (*Plan, error) { return given(name, plan, r) },
	}
	switch {
	case plan.IsSequence():
		s.Type = Sequencing
		s.Solve = func(_ context.Context, r Request) (*Plan, error) { return givenSequence(name, plan, r) }
	case plan.IsFlush():
		s.Type, s.Microbatches = Flushing, plan.Microbatches
	}
	return s
}

// givenSequence simulates a plan for one device within the limits of a request.
func givenSequence(name string, plan *Plan, r Request) (*Plan, error) {
	if err := plan.For(r.Chain); err != nil {
		return nil, err
	}
	seq, limits := plan.Sequence(), r.Platform.Limits(0)
	p, err := PlanSequence(r.Chain, name, seq, limits)
	if over := (*schedule.MemoryError)(nil); !errors.As(err, &over) {
		return p, err
	}
	// Without a limit nothing waits for memory, and so it runs in the peak that it has there.
	limits.Memory = NoLimit
	free, err := schedule.Simulate(r.Chain, seq, limits)
	if err != nil {
		return nil, err
	}
	small := &InfeasibleError{Strategy: name, Memory: r.Platform.Memory[0], Smallest: free.Peak}
	if free.PeakOp >= 0 {
		small.Op = seq[free.PeakOp]
		small.LayerName = r.Chain.Layer(small.Op.Layer).Name
	}
	return nil, small
}

// given returns a copy of a plan with its platform and what it costs there.
func given(name string, plan *Plan, r Request) (*Plan, error) {
	p := *plan
	p.Strategy, p.Platform, p.Extra = name, r.Platform, maps.Clone(plan.Extra)
	report, err := Check(r.Chain, r.Platform, &p)
	if report != nil {
		report.predict(&p)
	}
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) && invalid.OnlyMemory() && report != nil {
		return nil, &InfeasibleError{Strategy: name, Reason: invalid.Violations[0].Reason, Smallest: slices.Max(report.PerDevicePeak), Best: &p}
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}
