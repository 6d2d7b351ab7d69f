package planner

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/ilp"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
)

// Pipelines returns all strategies for several devices, in the order in which they are shown: those that choose stages
// first, then the schedules.
func Pipelines() []pipeline.Strategy {
	return slices.Concat(partition.Strategies(), ilp.Strategies(), loadline.Strategies(), periodic.Strategies(), flush.Strategies())
}

// LookupPipeline returns the strategy for several devices of that name, or the schedule table of that file. Errors:
// ErrUnknownStrategy, those of interop.Strategy.
func LookupPipeline(name string) (pipeline.Strategy, error) {
	if interop.IsTable(name) {
		return interop.Strategy(name)
	}
	all := Pipelines()
	names := make([]string, len(all))
	for i, s := range all {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	return pipeline.Strategy{}, fmt.Errorf("%w %q for several devices: known are %s", ErrUnknownStrategy, name, strings.Join(names, ", "))
}
