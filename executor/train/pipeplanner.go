package train

import (
	"context"
	"errors"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// PipeRequest says how a job is planned for its devices.
type PipeRequest struct {
	Strategy pipeline.Strategy
	Platform *pipeline.Platform // its memory is not looked at
	Options  pipeline.Options
	// Portals lets skips go straight from the stage that makes them to the one that reads them, where that makes the plan no
	// slower and no device's arena larger than the largest is without.
	Portals bool
	Corrections
	// Limit returns the bytes that the arena of each device may have, given what the device that needs most needs of a plan
	// without limit.
	Limit func(most int64) int64
}

// pipePlanner plans one pipeline.
type pipePlanner struct {
	job   *Job
	chain *chain.Chain
	q     PipeRequest
}

// solve asks the strategy; a search that has not ended gives its best plan.
func (p *pipePlanner) solve(ctx context.Context, c *chain.Chain, platform *pipeline.Platform, o pipeline.Options) (*pipeline.Plan, error) {
	plan, err := p.q.Strategy.Solve(ctx, pipeline.Request{Chain: c, Platform: platform, Options: o})
	if late := (*pipeline.UnfinishedError)(nil); errors.As(err, &late) && late.Best != nil {
		plan, err = late.Best, nil
	}
	return plan, err
}

// measured returns a plan with what it takes.
func (p *pipePlanner) measured(platform *pipeline.Platform, plan *pipeline.Plan) (*JobPlan, error) {
	return pipelineOf(p.job, pipe.Costs{Chain: p.chain, Platform: platform}, plan, p.q.Corrections)
}
