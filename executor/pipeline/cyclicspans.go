package pipeline

import (
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// CycleSpans returns when the ops of a cyclic plan ran, by the step that issues them: an op with a prime in the one behind its own.
func CycleSpans(plan *pipeline.Plan, ran []Timing) (all []cycle.Span) {
	for _, t := range ran {
		if t.Kind != pipeline.CycleOp {
			continue
		}
		x := cycle.Span{Step: t.Minibatch / plan.Microbatches, Position: t.Op - 1}
		if plan.Cycle[x.Position].Prime {
			x.Step++
		}
		x.Span = schedule.Span{Start: schedule.Duration(t.Start), End: schedule.Duration(t.End)}
		all = append(all, x)
	}
	return all
}
