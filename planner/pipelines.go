package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"plimsoll/internal/await"
	"plimsoll/internal/names"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/ilp"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/pipeline/joint"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/profiles"
)

// Pipelines returns all strategies for several devices, in the order in which they are shown: those that choose stages
// first, then the schedules. They return as soon as their context is canceled.
func Pipelines() []pipeline.Strategy {
	return prompt(slices.Concat(partition.Strategies(), ilp.Strategies(), loadline.Strategies(), joint.Strategies(), periodic.Strategies(), flush.Strategies()))
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

// ChainFor returns the chain on which a strategy for several devices plans: that of the source, but for pipedream and an operator
// graph that of partition.PipeDreamChain. So a plan's chain follows from the graph and the plan. Errors: those of PipeDreamChain.
func ChainFor(s *profiles.Source, strategy string, p *pipeline.Platform) (*chain.Chain, error) {
	if s.Graph == nil || p == nil || strategy != partition.PipeDream {
		return s.Chain, nil
	}
	return partition.PipeDreamChain(s.Graph, p)
}

// LookupPipeline returns the strategy for several devices of that name, or the schedule table of that file. Errors:
// ErrUnknownStrategy, ErrOtherDevices, those of interop.Strategy.
func LookupPipeline(name string) (pipeline.Strategy, error) {
	if interop.IsTable(name) {
		return interop.Strategy(name)
	}
	var known []string
	for _, s := range Pipelines() {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	if slices.Contains(Names(), name) {
		return pipeline.Strategy{}, fmt.Errorf("%w: %s plans for one device: for several there are %s", ErrOtherDevices, name, strings.Join(known, ", "))
	}
	return pipeline.Strategy{}, names.Unknown(ErrUnknownStrategy, name, known)
}
