package pipeline

import "plimsoll/planner/pipeline"

// Grouping returns how many minibatches make one update of a plan, as Executor.Group does, without devices. Errors: those of
// Needs.
func Grouping(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) (int, error) {
	e := &Executor{Workload: w, opt: opt}
	err := e.lay(costs, plan, costs.Platform.Devices)
	return e.group, err
}
