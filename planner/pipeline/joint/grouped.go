package joint

import (
	"context"
	"errors"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/schedule"
)

// Chains of more layers than mostLayers are planned in about coarseGroups groups first: the sequences of stages take the cube of their layers. Then
// groups near the ends of the stages are a quarter as long, again and again, down to single layers.
const (
	mostLayers   = 256
	coarseGroups = 64
	finer        = 4
)

// solve returns the fastest of its own plan and those of other strategies, synchronization counted. The stages of long chains end between groups
// of layers, and then, near the ends that these have, between any two layers. Errors: *pipeline.InfeasibleError, the context's, and
// those of requests that no periodic strategy takes.
func solve(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	tied := slices.ContainsFunc(r.Chain.Layers, func(l chain.Layer) bool { return l.Update.WeightsOf > 0 })
	if r.Chain.Len() <= mostLayers || len(r.Chain.Branches) > 0 || tied {
		return Without(ctx, r, Ingredients{})
	}
	return byGroups(ctx, r, coarseGroups)
}

// byGroups is solve of a chain that is planned in about so many groups first. Errors: those of solve.
func byGroups(ctx context.Context, r pipeline.Request, groups int) (*pipeline.Plan, error) {
	size := (r.Chain.Len() + groups - 1) / groups
	lasts := r.Chain.LastsOfEvery(size)
	best, err := grouped(ctx, r, lasts)
	if errors.As(err, new(*pipeline.InfeasibleError)) {
		return Without(ctx, r, Ingredients{}) // single layers may fit where groups do not
	}
	if err != nil {
		return nil, err
	}
	for near := size; near > 1; near = size {
		size = max(near/finer, 1)
		plan, err := grouped(ctx, r, closer(lasts, best.Stages, near, size))
		if err == nil && plan.SecondsPerMinibatch() < best.SecondsPerMinibatch() {
			best = plan
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	c, err := newCutter(ctx, r, Ingredients{})
	if err == nil {
		c.setBound(ctx, best)
	}
	return best, err
}

// closer returns the last layers of groups, with those of groups of size layers within near layers of the ends of stages.
func closer(lasts []int, stages []pipeline.Stage, near, size int) []int {
	n := lasts[len(lasts)-1]
	all := slices.Clone(lasts)
	for _, st := range stages {
		for l := st.Last - near/size*size; l <= st.Last+near; l += size {
			if l >= 1 && l < n {
				all = append(all, l)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// grouped returns the plan of the stages that are fastest for a chain whose layers are in groups. Errors: those of Without.
func grouped(ctx context.Context, r pipeline.Request, lasts []int) (*pipeline.Plan, error) {
	q := r
	var err error
	if q.Chain, err = chain.Group(r.Chain, lasts); err != nil {
		return nil, err
	}
	plan, err := Without(ctx, q, Ingredients{})
	if err != nil {
		return nil, err
	}
	return ungrouped(ctx, r, plan, lasts)
}

// ungrouped returns a plan of groups as one of their layers. Errors: those of the judge.
func ungrouped(ctx context.Context, r pipeline.Request, plan *pipeline.Plan, lasts []int) (*pipeline.Plan, error) {
	for i := range plan.Stages {
		st := &plan.Stages[i]
		if st.Ops != nil {
			st.Ops = schedule.Ungroup(st.Ops, lasts)
		}
		if st.First > 1 {
			st.First = lasts[st.First-2] + 1
		}
		st.Last = lasts[st.Last-1]
	}
	if shares(plan) {
		return pipeline.Finish(name, r, plan)
	}
	r.Stages = plan.Stages
	return periodic.StarFrom(ctx, name, r, synchronization(pipeline.NewCosts(r.Chain), r.Platform, r.Stages))
}
