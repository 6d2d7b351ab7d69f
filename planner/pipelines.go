package planner

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
)

// Pipelines returns all strategies for several devices, in the order in which they are shown: those that choose stages
// first, then the schedules.
func Pipelines() []pipeline.Strategy {
	return slices.Concat(partition.Strategies(), loadline.Strategies(), periodic.Strategies(), flush.Strategies())
}

// LookupPipeline returns the strategy for several devices of that name. Errors: ErrUnknownStrategy.
func LookupPipeline(name string) (pipeline.Strategy, error) {
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
