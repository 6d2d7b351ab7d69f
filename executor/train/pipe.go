package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/residency"
)

// PlanPipe plans a pipeline of a measured chain such that what the executor lays out fits in each device's arena, to the
// byte. Planners count memory by rules of their own: where a device needs more than its limit, the strategy is asked again
// for so much less. Errors: *executor.TooSmallError, *residency.HostError, those of the strategy and of pipeline.Needs.
func (j *Job) PlanPipe(ctx context.Context, c *chain.Chain, q PipeRequest) (*JobPlan, error) {
	costs := *c
	costs.Bandwidth = 0 // stages offload at that of the platform
	p := pipePlanner{job: j, chain: &costs, q: q}
	free, err := p.withHost(0).plan(ctx, pipeline.NoLimit)
	if err != nil {
		return nil, err
	}
	most, _ := free.extent()
	limit := q.Limit(most)
	found, err := p.withinHost(ctx, free, limit)
	if err != nil {
		return nil, err
	}
	found.Limit = limit
	return found, found.note()
}

// withinHost returns the fastest plan in a limit whose page-locked memory, to the byte, is within that of the platform, too. Where a plan
// needs more, the strategy is asked again for so much less. Errors: *residency.HostError, those of fastest.
func (p *pipePlanner) withinHost(ctx context.Context, free *JobPlan, limit int64) (*JobPlan, error) {
	most, q := p.q.Platform.HostMemory, p
	for range replans {
		found, err := q.fastestKeeping(ctx, free, limit)
		if err != nil {
			found, err = q.leastWithin(ctx, limit, err)
		}
		if errors.As(err, new(*residency.HostError)) {
			break
		}
		if err != nil || most == 0 || !found.IsCycle() || found.Needs[0].Host <= most {
			return found, err
		}
		q = q.withHost(max(q.q.Platform.HostMemory-(found.Needs[0].Host-most), 1))
	}
	return p.leastHost(ctx, free, limit)
}

// fastestKeeping is fastest with another free plan where that one takes more host memory than the platform has.
func (p *pipePlanner) fastestKeeping(ctx context.Context, free *JobPlan, limit int64) (_ *JobPlan, err error) {
	if most := p.q.Platform.HostMemory; free.IsCycle() && most > 0 && free.Needs[0].Host > most {
		if free, err = p.plan(ctx, pipeline.NoLimit); err != nil {
			return nil, err
		}
	}
	return p.fastest(ctx, free, limit)
}

// withHost returns the planner for another limit of host memory.
func (p *pipePlanner) withHost(bytes int64) *pipePlanner {
	out, platform := *p, *p.q.Platform
	platform.HostMemory, out.q.Platform = bytes, &platform
	return &out
}

// leastHost returns the plan with the least page-locked memory that is found, whatever the platform has. Error: *residency.HostError where
// that is more than the platform has; those of fastest.
func (p *pipePlanner) leastHost(ctx context.Context, free *JobPlan, limit int64) (*JobPlan, error) {
	for bytes := int64(1); ; {
		found, err := p.withHost(bytes).fastestKeeping(ctx, free, limit)
		if small, ok := errors.AsType[*residency.HostError](err); ok && small.Smallest > bytes {
			bytes = small.Smallest
			continue
		}
		if most := p.q.Platform.HostMemory; err == nil && found.Needs[0].Host > most {
			err = &residency.HostError{Strategy: p.q.Strategy.Name, Limit: most, Smallest: found.Needs[0].Host}
		}
		return found, err
	}
}

// fastest returns the fastest plan in a limit: of the strategy or, where the plan without a limit does not fit, of those whose plans it
// chooses among.
func (p *pipePlanner) fastest(ctx context.Context, free *JobPlan, limit int64) (*JobPlan, error) {
	if most, _ := free.extent(); most <= limit || len(p.q.Strategy.Parts) == 0 {
		return p.best(ctx, free, limit)
	}
	var found *JobPlan
	var next pipeline.Choice // of found: its part, and the part whose plan comes next
	var failure *executor.TooSmallError
	for _, s := range p.q.Strategy.Parts {
		part := *p
		part.q.Strategy = s
		other, err := part.alone(ctx, limit)
		small, tooSmall := errors.AsType[*executor.TooSmallError](err)
		switch {
		case tooSmall && (failure == nil || small.Smallest < failure.Smallest):
			failure = small
		case tooSmall || noPlan(err):
		case err != nil:
			return nil, err
		case found == nil:
			found, next.Winner = other, s.Name
		case other.PredictedSeconds() < found.PredictedSeconds():
			next.RunnerUp = &pipeline.RunnerUp{Strategy: next.Winner, Seconds: found.PredictedSeconds()}
			found, next.Winner = other, s.Name
		case next.RunnerUp == nil || other.PredictedSeconds() < next.RunnerUp.Seconds:
			next.RunnerUp = &pipeline.RunnerUp{Strategy: s.Name, Seconds: other.PredictedSeconds()}
		}
	}
	switch {
	case found != nil:
		if free.Winner != "" {
			found.Choice = next
		}
		found.Strategy = p.q.Strategy.Name
		return found, nil
	case failure != nil:
		failure.Strategy = p.q.Strategy.Name
		return nil, failure
	}
	return p.best(ctx, free, limit)
}

// alone returns the fastest plan of one strategy in a limit.
func (p *pipePlanner) alone(ctx context.Context, limit int64) (*JobPlan, error) {
	free, err := p.plan(ctx, pipeline.NoLimit)
	if err != nil {
		return nil, err
	}
	return p.best(ctx, free, limit)
}

// noPlan reports whether a strategy has no plan on some devices whatever their memory, or none that can be run, where others may.
func noPlan(err error) bool {
	return errors.Is(err, pipeline.ErrInfeasible) || errors.Is(err, pipeline.ErrPlatform) || errors.Is(err, periodic.ErrStages) || errors.Is(err, pipe.ErrPlan)
}

// best returns the faster of the plans with and without the links to host memory, if there are any. Which of them fits may depend
// on bytes that only the layout knows. Plans that move weights and state need the link.
func (p *pipePlanner) best(ctx context.Context, free *JobPlan, limit int64) (*JobPlan, error) {
	found, err := p.within(ctx, free, limit)
	if p.q.Platform.Host == 0 || free.HostState || p.q.Strategy.Type == pipeline.Cyclic || free.IsCycle() || err != nil && !errors.As(err, new(*executor.TooSmallError)) {
		return found, err
	}
	alone, q := *p, *p.q.Platform
	q.Host = 0
	alone.q.Platform = &q
	kept, failure := alone.within(ctx, free, limit)
	switch {
	case failure != nil && !errors.As(failure, new(*executor.TooSmallError)):
		return nil, failure
	case err != nil && failure != nil:
		return nil, smaller(err, failure)
	case err != nil || failure == nil && kept.PredictedSeconds() <= found.PredictedSeconds():
		return kept, failure
	}
	return found, nil
}

// smaller returns the one of two errors, both *executor.TooSmallError, that names the smaller limit.
func smaller(a, b error) error {
	x, _ := errors.AsType[*executor.TooSmallError](a)
	y, _ := errors.AsType[*executor.TooSmallError](b)
	if y.Smallest < x.Smallest {
		return b
	}
	return a
}

// plan returns the strategy's plan for so much memory of each device, by its own account.
func (p *pipePlanner) plan(ctx context.Context, memory int64) (*JobPlan, error) {
	platform := p.q.Platform.WithMemory(memory)
	plan, err := p.solve(ctx, p.chain, platform, p.q.Options)
	if err != nil {
		return nil, err
	}
	out, err := p.measured(platform, plan)
	if err != nil || !p.q.Portals {
		return out, err
	}
	return p.straight(ctx, platform, out)
}

// replans bounds how often a strategy is asked for less memory before it is asked for the smallest. Then refinements bounds the
// requests between a memory with a plan that does not fit and one with a plan that fits, or with none.
const (
	replans     = 40
	refinements = 6
)

// within returns a plan whose arenas fit, the fastest of those that it has seen.
func (p *pipePlanner) within(ctx context.Context, free *JobPlan, limit int64) (*JobPlan, error) {
	if most, _ := free.extent(); most <= limit {
		return free, nil
	}
	over, memory := limit, limit
	for range replans {
		found, most, err := p.extends(ctx, memory)
		switch {
		case err != nil:
			return nil, err
		case found == nil || most <= limit:
			if found, err = p.between(ctx, found, memory, over, limit); found != nil || err != nil {
				return found, err
			}
			return p.smallest(ctx, limit, most, free)
		}
		over, free = memory, found
		memory = max(0, min(memory, mostOf(found.PerDevicePeak))-(most-limit))
	}
	return p.smallest(ctx, limit, 0, free)
}

// extends returns the plan for so much memory and its largest arena; nil when there is none, and the smallest memory with one.
func (p *pipePlanner) extends(ctx context.Context, memory int64) (*JobPlan, int64, error) {
	found, err := p.plan(ctx, memory)
	if inf := (*pipeline.InfeasibleError)(nil); errors.As(err, &inf) {
		return nil, inf.Smallest, nil
	}
	if err != nil {
		return nil, 0, err
	}
	most, _ := found.extent()
	return found, most, nil
}

// between returns the fastest plan that it finds between a memory whose plan fits, nil where there is none, and one whose plan does
// not. It ends when a plan takes nearly all of the limit.
func (p *pipePlanner) between(ctx context.Context, best *JobPlan, low, over, limit int64) (*JobPlan, error) {
	for range refinements {
		if best != nil {
			if most, _ := best.extent(); most > limit-limit/32 {
				break
			}
		}
		middle := low + (over-low)/2
		if middle == low {
			break
		}
		found, most, err := p.extends(ctx, middle)
		switch {
		case err != nil:
			return nil, err
		case found != nil && most > limit:
			over = middle
			continue
		case found != nil && (best == nil || found.PredictedSeconds() < best.PredictedSeconds()):
			best = found
		}
		low = middle
	}
	return best, nil
}

// leastWithin returns the plan of the strategy with the least memory where its search failed. If that one does not fit either, the error
// names the smaller limit of the two.
func (p *pipePlanner) leastWithin(ctx context.Context, limit int64, failure error) (*JobPlan, error) {
	if len(p.q.Strategy.Least) == 0 || ctx.Err() != nil {
		return nil, failure
	}
	found, err := p.least(ctx, p.q.Platform.HostMemory)
	if found == nil || err != nil {
		return nil, cmp.Or(err, failure)
	}
	most, device := found.extent()
	if most <= limit {
		return found, nil
	}
	small, ok := errors.AsType[*executor.TooSmallError](failure)
	if ok && small.Smallest <= most {
		return nil, failure
	}
	return nil, &executor.TooSmallError{Strategy: p.q.Strategy.Name, Limit: limit, Smallest: most, Found: true, Device: device, Devices: p.q.Platform.Devices}
}

// least returns the first of the strategy's plans with the least memory, laid out, that is within a limit of host memory, 0 for none. It
// returns nil if no plan is.
func (p *pipePlanner) least(ctx context.Context, host int64) (*JobPlan, error) {
	for _, solve := range p.q.Strategy.Least {
		plan, err := solve(ctx, pipeline.Request{Chain: p.chain, Platform: p.q.Platform, Options: p.q.Options})
		if err != nil {
			return nil, fmt.Errorf("%s with the least memory: %w", p.q.Strategy.Name, err)
		}
		found, err := p.measured(plan.Platform, plan)
		if err != nil || host == 0 || found.Needs[0].Host <= host {
			return found, err
		}
	}
	return nil, nil
}

// mostOf returns the largest of a plan's peaks; no bound when it does not say.
func mostOf(peaks []int64) int64 {
	if len(peaks) == 0 {
		return pipeline.NoLimit
	}
	return slices.Max(peaks)
}

// smallest tries the smallest memory at which the strategy has a plan; 0: it is not known, and the latest plan counts.
func (p *pipePlanner) smallest(ctx context.Context, limit, memory int64, latest *JobPlan) (*JobPlan, error) {
	if memory > 0 {
		var err error
		if latest, err = p.plan(ctx, memory); err != nil {
			return nil, fmt.Errorf("%s at its smallest limit: %w", p.q.Strategy.Name, err)
		}
	}
	most, device := latest.extent()
	if most <= limit {
		return latest, nil
	}
	small := &executor.TooSmallError{Strategy: p.q.Strategy.Name, Limit: limit, Smallest: most, Found: true, Device: device, Devices: p.q.Platform.Devices}
	if !latest.IsCycle() { // whose weights and state move
		small.Static = latest.Needs[device].Static
	}
	return nil, small
}
