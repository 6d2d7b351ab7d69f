package joint

import (
	"context"
	"errors"
	"sync"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
)

// solve returns the fastest of its own plan and those of other strategies, synchronization counted. Errors: *pipeline.InfeasibleError, the
// context's, and those of requests that no periodic strategy takes.
func solve(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	c, err := newCutter(ctx, r)
	if err != nil {
		return nil, err
	}
	solvers := append(others(r.Platform), func(ctx context.Context, _ pipeline.Request) (*pipeline.Plan, error) { return c.plan(ctx) })
	plans, errs := make([]*pipeline.Plan, len(solvers)), make([]error, len(solvers))
	var all sync.WaitGroup
	for i, solve := range solvers {
		all.Go(func() { plans[i], errs[i] = solve(ctx, r) })
	}
	all.Wait()
	var best *pipeline.Plan
	smallest := int64(0)
	for i, err := range errs {
		if small := (*pipeline.InfeasibleError)(nil); errors.As(err, &small) {
			smallest = least(smallest, small.Smallest)
			continue
		}
		if errors.Is(err, pipeline.ErrPlatform) || errors.Is(err, periodic.ErrStages) {
			continue // no link joins its stages, or its replicas make too long a pattern
		}
		if err != nil {
			return nil, err
		}
		if best == nil || plans[i].SecondsPerMinibatch() < best.SecondsPerMinibatch() {
			best = plans[i]
		}
	}
	if best == nil {
		return nil, infeasible(r.Platform.Devices, smallest)
	}
	best.Strategy = name
	if best.Predicted.LowerBound = c.bound(); shares(best) {
		best.Predicted.LowerBound = c.shortest()
	}
	return best, nil
}

// least returns the smaller of two memories of which 0 is not known.
func least(x, y int64) int64 {
	if x == 0 || y == 0 {
		return max(x, y)
	}
	return min(x, y)
}

// solver makes a plan, as a strategy does.
type solver func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error)

// others returns what makes the plans that are judged, too. Contiguous and madpipe are no faster than loadline. On many devices madpipe takes
// longer than all the rest.
func others(p *pipeline.Platform) []solver {
	if p.Devices > anyCount {
		return []solver{loadline.Contiguous, partition.PipeDreamPlan}
	}
	return []solver{loadline.Strategies()[0].Solve, partition.PipeDreamPlan}
}

// shares reports whether a device has several stages.
func shares(p *pipeline.Plan) bool {
	seen := map[int]bool{}
	for _, st := range p.Stages {
		for _, d := range st.Devices {
			if seen[d] {
				return true
			}
			seen[d] = true
		}
	}
	return false
}

// plan returns that of the dynamic program's stages. Errors: *pipeline.InfeasibleError, the context's.
func (c *cutter) plan(ctx context.Context) (*pipeline.Plan, error) {
	r := c.Request
	var err error
	if r.Stages, err = c.best(ctx); err != nil {
		return nil, err
	}
	if r.Stages == nil {
		return nil, infeasible(r.Platform.Devices, 0)
	}
	return periodic.StarFrom(ctx, name, r, synchronization(c.costs, r.Platform, r.Stages))
}

// synchronization returns the shortest time for a minibatch in which the links between replicas carry their gradients.
func synchronization(k *pipeline.Costs, p *pipeline.Platform, stages []pipeline.Stage) (seconds float64) {
	for _, st := range stages {
		for i := 1; i < len(st.Devices); i++ {
			seconds = max(seconds, perByte(p, st.Devices[i-1], st.Devices[i])*float64(k.Weights(st.First, st.Last))/float64(len(st.Devices)))
		}
	}
	return seconds
}
