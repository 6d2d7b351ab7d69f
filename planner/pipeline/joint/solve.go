package joint

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
)

// Without returns the fastest plan that has none of some ingredients: what is left of joint's shows what they are worth. Errors: those of
// solve.
func Without(ctx context.Context, r pipeline.Request, these Ingredients) (*pipeline.Plan, error) {
	c, err := newCutter(ctx, r, these)
	if err != nil {
		return nil, err
	}
	solvers := append(these.others(), func(ctx context.Context, _ pipeline.Request) (*pipeline.Plan, error) { return c.plan(ctx) })
	plans, errs := make([]*pipeline.Plan, len(solvers)), make([]error, len(solvers))
	var all sync.WaitGroup
	for i, solve := range solvers {
		all.Go(func() { plans[i], errs[i] = solve(ctx, r) })
	}
	all.Wait()
	best := pick{request: r}
	for i, plan := range plans {
		if err := best.add(plan, errs[i]); err != nil {
			return nil, err
		}
	}
	if r.Platform.Devices <= anyCount && !these.Stages {
		if err := best.add(loadline.MadPipe(ctx, r, best.seconds())); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if best.plan == nil {
		return nil, infeasible(r.Platform.Devices, best.smallest)
	}
	best.plan.Strategy = name
	c.setBound(ctx, best.plan)
	return best.plan, nil
}

// setBound says what no plan takes less than.
func (c *cutter) setBound(ctx context.Context, plan *pipeline.Plan) {
	if plan.Predicted.LowerBound = c.bound(ctx); shares(plan) {
		plan.Predicted.LowerBound = c.shortest()
	}
}

// solveOwn returns the plan of the dynamic program alone. Errors: those of solve.
func solveOwn(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	c, err := newCutter(ctx, r, Ingredients{})
	if err != nil {
		return nil, err
	}
	return c.plan(ctx)
}

// pick is the fastest of several plans for a request, updates counted, the first of equals.
type pick struct {
	request  pipeline.Request
	plan     *pipeline.Plan
	smallest int64                     // a memory that works, the least that is known of those that did not fit; 0: none
	refusal  *pipeline.InfeasibleError // the first of those that did not fit
}

// add looks at a plan. A plan that does not fit, needs a missing link or has too many replicas for a pattern is no plan; other errors are
// returned.
func (p *pick) add(plan *pipeline.Plan, err error) error {
	var small *pipeline.InfeasibleError
	switch {
	case errors.As(err, &small):
		p.refusal = cmp.Or(p.refusal, small)
		if p.smallest == 0 || small.Smallest > 0 && small.Smallest < p.smallest {
			p.smallest = small.Smallest
		}
	case err == nil && plan == nil || errors.Is(err, pipeline.ErrPlatform) || errors.Is(err, periodic.ErrStages):
	case err != nil:
		return err
	case p.plan == nil || p.stepSeconds(plan) < p.stepSeconds(p.plan)*(1-1e-9): // of equals the first: they differ by rounding
		p.plan = plan
	}
	return nil
}

// solver makes a plan, as a strategy does.
type solver func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error)

// stepSeconds is pipeline.StepSeconds.
func (p *pick) stepSeconds(plan *pipeline.Plan) float64 {
	return pipeline.StepSeconds(p.request.Chain, p.request.Platform, plan)
}

// seconds returns the time of a minibatch of the plan; +Inf: there is none.
func (p *pick) seconds() float64 {
	if p.plan == nil {
		return math.Inf(1)
	}
	return p.plan.SecondsPerMinibatch()
}

// others returns the solvers of other plans to judge, which lack some ingredients. Loadline's contiguous stages stand in for
// contiguous, which is no faster. Madpipe takes longer, so it comes last and looks only for faster plans; on many devices it takes longer
// than all the rest.
func (without Ingredients) others() (all []solver) {
	if without.Stages {
		return nil
	}
	if !without.Recomputation {
		all = append(all, loadline.Contiguous)
	}
	if !without.Replicas {
		all = append(all, partition.PipeDreamPlan)
	}
	return all
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

// plan returns the plan of the dynamic program's stages. Errors: *pipeline.InfeasibleError, the context's.
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
			seconds = max(seconds, perByte(p, st.Devices[i-1], st.Devices[i])*float64(k.Summed(st.First, st.Last))/float64(len(st.Devices)))
		}
	}
	return seconds
}

// parts are the strategies whose plans are judged, this package's own first.
var parts = append([]pipeline.Strategy{{Name: name, Type: pipeline.Partitioner, Solve: solveOwn}}, slices.Concat(named(loadline.Strategies(), "loadline"), named(partition.Strategies(), "pipedream"))...)

// named returns some of a list of strategies.
func named(all []pipeline.Strategy, names ...string) (some []pipeline.Strategy) {
	for _, s := range all {
		if slices.Contains(names, s.Name) {
			some = append(some, s)
		}
	}
	return some
}
