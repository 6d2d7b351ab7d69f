package train

import (
	"context"

	"plimsoll/executor"
	"plimsoll/models/data"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// Plan plans a step of the job on one device. Where the samples are bytes, the plan has the next batch wait in the room that it
// leaves, if it does (executor.Staged). Errors: those of executor.Plan.
func (j *Job) Plan(ctx context.Context, c *chain.Chain, s pipeline.Strategy, limit int64, opt strategy.Options) (*pipeline.Plan, error) {
	p, err := executor.Plan(ctx, j.Work, c, s, limit, opt)
	if staged := j.staged(); staged != j && err == nil {
		p = executor.Staged(staged.Work, c, p, limit)
	}
	return p, err
}

// Planned returns the job with the memory that a plan of it counts: that of the next batch, where that waits in the arena.
func (j *Job) Planned(p *pipeline.Plan) *Job {
	if _, staged := p.Extra[executor.StagedField]; staged {
		return j.staged()
	}
	return j
}

// StagedBytes returns the bytes of the arena in which the next batch can wait; 0 where samples are no bytes.
func (j *Job) StagedBytes() int64 { return j.staged().Work.StagedBytes() }

// staged returns the job with room for the next batch; the job itself where samples are no bytes.
func (j *Job) staged() *Job {
	palette := data.Palette(j.Set)
	if palette == nil {
		return j
	}
	out := *j
	out.Work = j.Work.Stage(palette)
	return &out
}
