package pipeline

import (
	"context"
	"plimsoll/planner/pipeline"
)

// issue notes what a task does.
func (d *compiler) issue(ctx context.Context, v instance) error {
	if v.far > 0 {
		return d.tasks().sendThrough(ctx, v)
	}
	switch v.kind {
	case pipeline.F:
		return d.tasks().forward(ctx, d.stages[v.stage], v)
	case pipeline.CF:
		return d.tasks().sendOutput(ctx, d.stages[v.stage], v)
	case pipeline.CB:
		t := d.stages[v.stage+1]
		return d.tasks().sendFrom(ctx, &t.deltas, t.away[v.to], v, 0, 0)
	case pipeline.Joining:
		return d.sums().sumBuckets(ctx, d.stages[v.stage], v)
	case pipeline.Reducing, pipeline.Gathering, pipeline.Admitting, pipeline.Owning, pipeline.Completing:
		return d.sums().synchronize(ctx, d.stages[v.stage], v)
	case pipeline.Update:
		return d.updates(ctx, d.stages[v.stage], v.minibatch)
	}
	return d.tasks().backward(ctx, d.stages[v.stage], v)
}

// issueRecorded notes a task and an event behind it.
func (d *compiler) issueRecorded(ctx context.Context, v instance) error {
	_ = d.note(command{verb: doBegin})
	if err := d.issue(ctx, v); err != nil {
		return err
	}
	return d.note(command{verb: doEnd, on: d.queueFor(v)})
}
