// Package planner decides: it turns the costs of a chain and the limits of a device into a plan.
//
// It lists every single-device strategy. Like everything below it, it is a pure function of its input: no device, no
// clock, and no randomness that the input does not seed.
package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/names"
	"plimsoll/planner/auto"
	"plimsoll/planner/milp"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// ErrUnknownStrategy means that no strategy has the name that was asked for; the message lists those that exist.
var ErrUnknownStrategy = errors.New("unknown strategy")

// ErrOtherDevices means that a strategy for several devices was asked to plan for one, or the other way round.
var ErrOtherDevices = errors.New("wrong strategy")

// Strategies returns all strategies of chains, in the order in which they are shown. Those of offload and pofo need a link:
// see For. Those of multichain, which plan branches that meet, are not among them.
func Strategies() []strategy.Strategy {
	return slices.Concat(remat.Strategies(), offload.Strategies(), pofo.Strategies(), []strategy.Strategy{auto.Strategy()})
}

// For returns the strategies that can plan with a link; without one these are the ones that only recompute, and auto.
func For(link schedule.Link) []strategy.Strategy { return append(auto.Members(link), auto.Strategy()) }

// NeedsLink reports whether a strategy refuses problems without a link.
func NeedsLink(name string) bool {
	joins := slices.ContainsFunc(multichain.Strategies(), func(s strategy.Strategy) bool { return s.Name == name })
	return !joins && !slices.ContainsFunc(For(schedule.Link{}), func(s strategy.Strategy) bool { return s.Name == name })
}

// Names returns the names of all strategies.
func Names() []string {
	all := Strategies()
	list := make([]string, len(all))
	for i, s := range all {
		list[i] = s.Name
	}
	return list
}

// Lookup returns the strategy of that name. Errors: ErrUnknownStrategy, ErrOtherDevices, milp.ErrNoSolver.
func Lookup(name string) (strategy.Strategy, error) {
	for _, s := range slices.Concat(Strategies(), multichain.Strategies()) {
		if s.Name == name {
			return s, nil
		}
	}
	if name == remat.Checkmate {
		return strategy.Strategy{}, fmt.Errorf("%s: %w", name, milp.ErrNoSolver)
	}
	if slices.ContainsFunc(Pipelines(), func(s pipeline.Strategy) bool { return s.Name == name }) {
		return strategy.Strategy{}, fmt.Errorf("%w: %s plans for several devices: give --devices", ErrOtherDevices, name)
	}
	return strategy.Strategy{}, names.Unknown(ErrUnknownStrategy, name, Names())
}

// Solve runs a strategy and simulates what it returns, so that no plan leaves the planner unchecked.
// Errors: those of Within, *strategy.InfeasibleError among them.
func Solve(ctx context.Context, s strategy.Strategy, p strategy.Problem) (*pipeline.Plan, error) {
	winner, proved := "", 0.0
	p.Chosen = func(name string) { winner = name }
	p.Proved = func(bound float64) { proved = bound }
	seq, err := s.Within(ctx, p)
	if err != nil {
		return nil, err
	}
	plan, err := pipeline.PlanSequence(p.Chain, s.Name, seq, p.Limits())
	if err != nil {
		return nil, fmt.Errorf("BUG: %s returned a sequence that cannot run: %w", s.Name, err)
	}
	plan.Winner, plan.Predicted.LowerBound = winner, proved
	return plan, nil
}
