package pipeline

import (
	"context"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
)

// issue notes what a task does.
func (d *compiler) issue(ctx context.Context, v order.Instance) error {
	if v.Far > 0 {
		return d.tasks().sendThrough(ctx, v)
	}
	switch v.Kind {
	case pipeline.F:
		return d.tasks().forward(ctx, d.stages[v.Stage], v)
	case pipeline.CF:
		return d.tasks().sendOutput(ctx, d.stages[v.Stage], v)
	case pipeline.CB:
		t := d.stages[v.Stage+1]
		return d.tasks().sendFrom(ctx, &t.deltas, t.away[v.To], v, 0, 0)
	case pipeline.Joining:
		return d.sums().sumBuckets(ctx, d.stages[v.Stage], v)
	case pipeline.Reducing, pipeline.Gathering, pipeline.Admitting, pipeline.Owning, pipeline.Completing:
		return d.sums().synchronize(ctx, d.stages[v.Stage], v)
	case pipeline.Update:
		return d.updates(ctx, d.stages[v.Stage], v.Minibatch)
	}
	return d.tasks().backward(ctx, d.stages[v.Stage], v)
}

// issueRecorded notes a task and an event behind it.
func (d *compiler) issueRecorded(ctx context.Context, v order.Instance) error {
	d.note(table.Command{Verb: table.DoBegin})
	if err := d.issue(ctx, v); err != nil {
		return err
	}
	d.note(table.Command{Verb: table.DoEnd, On: d.queueFor(v)})
	return nil
}
