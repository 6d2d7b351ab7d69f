package planner

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/internal/names"
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
// ErrUnknownStrategy, ErrOtherDevices, those of interop.Strategy.
func LookupPipeline(name string) (pipeline.Strategy, error) {
	if interop.IsTable(name) {
		return interop.Strategy(name)
	}
	var known []string
	for _, s := range Pipelines() {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	if slices.Contains(Names(), name) {
		return pipeline.Strategy{}, fmt.Errorf("%w: %s plans for one device: for several there are %s", ErrOtherDevices, name, strings.Join(known, ", "))
	}
	return pipeline.Strategy{}, names.Unknown(ErrUnknownStrategy, name, known)
}
