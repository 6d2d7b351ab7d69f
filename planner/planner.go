// Package planner decides: it turns the costs of a chain and the limits of devices into a plan.
//
// It lists every strategy. Like everything below it, it is a pure function of its input: no device, no clock, and no
// randomness that the input does not seed.
package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"plimsoll/internal/await"
	"plimsoll/internal/names"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/ilp"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/pipeline/joint"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/pofo"
	"plimsoll/planner/profiles"
	"plimsoll/planner/remat"
	"plimsoll/planner/residency"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// ErrUnknownStrategy means that no strategy has the name that was asked for; the message lists those that exist.
var ErrUnknownStrategy = errors.New("unknown strategy")

// ErrOtherDevices means that a strategy for several devices was asked to plan for one, or the other way round.
var ErrOtherDevices = errors.New("wrong strategy")

// Strategies returns all strategies: Sequences, those of branches that meet, Cyclic and Pipelines.
func Strategies() []pipeline.Strategy {
	return slices.Concat(Sequences(), Joins(), Cyclic(), Pipelines())
}

// Cyclic returns the strategies that say where weights, gradients and optimizer state of one device are.
func Cyclic() []pipeline.Strategy { return prompt(residency.ForPlans()) }

// Sequences returns the strategies that plan a chain for one device, in the order in which they are shown. Those of offload and pofo
// need a link: see For.
func Sequences() []pipeline.Strategy {
	return strategy.Strategies(slices.Concat(remat.Strategies(), offload.Strategies(), pofo.Strategies(), []strategy.Sequencer{auto.Strategy()}))
}

// Joins returns the strategies that plan branches that meet for one device; auto does that, too.
func Joins() []pipeline.Strategy { return strategy.Strategies(multichain.Strategies()) }

// Pipelines returns the strategies for several devices, in the order in which they are shown: those that choose stages first, then the
// schedules. They return as soon as their context is canceled.
func Pipelines() []pipeline.Strategy {
	return prompt(versioned(slices.Concat(partition.Strategies(), ilp.Strategies(), loadline.Strategies(), joint.Strategies(), periodic.Strategies(), flush.Strategies())))
}

// prompt returns strategies that return as soon as their context is canceled.
func prompt(all []pipeline.Strategy) []pipeline.Strategy {
	out := slices.Clone(all)
	for i, s := range out {
		out[i].Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			plan, err := await.Do(ctx, func() (*pipeline.Plan, error) { return s.Solve(ctx, r) })
			if late := ctx.Err(); late != nil && errors.Is(err, pipeline.ErrInfeasible) {
				err = late // what was left out might have fitted
			}
			return plan, err
		}
		out[i].Parts = prompt(s.Parts)
	}
	return out
}

// For returns the strategies that can plan a chain with a link; without one these are the ones that only recompute, and auto.
func For(link schedule.Link) []pipeline.Strategy {
	return strategy.Strategies(append(auto.Members(link), auto.Strategy()))
}

// NeedsLink reports whether a strategy for one device refuses requests without a link.
func NeedsLink(name string) bool {
	return find(slices.Concat(For(schedule.Link{}), Joins()), name) == nil
}

// Names returns the names of Sequences.
func Names() []string { return namesOf(Sequences()) }

func namesOf(all []pipeline.Strategy) []string {
	list := make([]string, len(all))
	for i, s := range all {
		list[i] = s.Name
	}
	return list
}

// find returns the strategy of that name, nil when there is none.
func find(all []pipeline.Strategy, name string) *pipeline.Strategy {
	if i := slices.IndexFunc(all, func(s pipeline.Strategy) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Lookup returns the strategy of that name, or the schedule table of that file. Errors: ErrUnknownStrategy, milp.ErrNoSolver, those of
// interop.Strategy.
func Lookup(name string) (pipeline.Strategy, error) {
	if interop.IsTable(name) {
		return interop.Strategy(name)
	}
	all := Strategies()
	s := find(all, name)
	switch {
	case s != nil:
		return *s, nil
	case name == remat.Checkmate:
		return pipeline.Strategy{}, fmt.Errorf("%s: %w", name, milp.ErrNoSolver)
	}
	return pipeline.Strategy{}, names.Unknown(ErrUnknownStrategy, name, namesOf(all))
}

// LookupSequence is Lookup of a strategy for one device. Errors: those of Lookup, ErrOtherDevices.
func LookupSequence(name string) (pipeline.Strategy, error) {
	s, err := Lookup(name)
	switch {
	case errors.Is(err, ErrUnknownStrategy) || interop.IsTable(name):
		return s, names.Unknown(ErrUnknownStrategy, name, Names())
	case err == nil && s.Type == pipeline.Cyclic:
		err = fmt.Errorf("%w: %s moves weights and state, too, which only plan and train do", ErrOtherDevices, name)
	case err == nil && s.Type != pipeline.Sequencing:
		err = fmt.Errorf("%w: %s plans for several devices: give --devices", ErrOtherDevices, name)
	}
	return s, err
}

// LookupPipeline is Lookup of a strategy for several devices. Errors: those of Lookup, ErrOtherDevices.
func LookupPipeline(name string) (pipeline.Strategy, error) {
	s, err := Lookup(name)
	known := namesOf(Pipelines())
	switch {
	case err == nil && s.Type == pipeline.Sequencing:
		err = fmt.Errorf("%w: %s plans for one device: for several there are %s", ErrOtherDevices, name, strings.Join(known, ", "))
	case errors.Is(err, ErrUnknownStrategy) || errors.Is(err, milp.ErrNoSolver):
		err = names.Unknown(ErrUnknownStrategy, name, known)
	}
	return s, err
}

// ChainFor returns the chain on which a strategy for several devices plans: that of the source, but for pipedream and an operator
// graph that of partition.PipeDreamChain. So a plan's chain follows from the graph and the plan. Errors: those of PipeDreamChain.
func ChainFor(s *profiles.Source, strategy string, p *pipeline.Platform) (*chain.Chain, error) {
	if s.Graph == nil || p == nil || strategy != partition.PipeDream {
		return s.Chain, nil
	}
	return partition.PipeDreamChain(s.Graph, p)
}
