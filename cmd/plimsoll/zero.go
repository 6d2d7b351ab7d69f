package main

import (
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
)

const zeroUsage = "1: replicas of a stage divide optimizer state (ZeRO-1)"

// checkZero refuses a --zero that is none, or not all of some strategies know.
func checkZero(n int, strategies ...pipeline.Strategy) error {
	z, err := pipeline.ParseZero(n)
	if err != nil {
		return usage(fmt.Errorf("--%w", err))
	}
	if i := slices.IndexFunc(strategies, func(s pipeline.Strategy) bool { return s.Type != pipeline.Flushing }); z != pipeline.ZeroNothing && i >= 0 {
		return usage(fmt.Errorf("--zero is for schedules with a flush: %s has none; give one that has replicas, as in --strategy joint-flush", strategies[i].Name))
	}
	return nil
}

// zeroOfPlan refuses --zero beside a plan that says otherwise.
func zeroOfPlan(n int, plan *pipeline.Plan) error {
	if plan != nil && n != 0 && int(plan.Zero) != n {
		return usage(fmt.Errorf("--zero is %d, and the plan's field \"zero\" is %d: leave --zero out, or plan again with it", n, plan.Zero))
	}
	return nil
}
