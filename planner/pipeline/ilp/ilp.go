// Package ilp finds the best allocation and schedule at once by integer programs: chapter 6 of the thesis.
//
// Every layer is a stage of its own and may be on any device; the schedule repeats with each minibatch. The answer is the best of
// all such plans, or the best that was found in time with its distance from what is possible. It needs HiGHS (see package milp).
//
// The thesis has one program whose period is a variable, with a large constant K in most rows. Here the period is given, and each
// program answers whether there is a schedule of it (search). With times in periods the constants are 1 and 2, the load of a device
// is a row without orders, and a wait of whole periods is linear. What a program answers is taken as devices, orders and whole
// waits alone; times follow from longest paths (schedule), so that the solver's tolerance does not matter, and what leaves the
// package has passed pipeline.Check.
//
//	allocation.go  which layer is where            thesis 6.2.1
//	program.go     tasks, their orders and path            6.2.2, 6.2.4, 6.3.2
//	links.go       communications                          6.2.3
//	memory.go      what devices hold                       6.3
//	schedule.go    from a solution to a plan
//	pack.go        whether anything fits, and the smallest memory
//	warm.go        the plan to begin with
//	near.go        better plans near it
//	search.go      programs for one period after another, the clock, the gap
//
// Programs have O(n²) binaries and rows, and take time exponential in that: up to about 8 layers the best plan is mostly proved in
// seconds.
package ilp

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
)

// Strategies returns the registry entries of this package.
func Strategies() []pipeline.Strategy {
	return []pipeline.Strategy{{
		Name: name, Type: pipeline.Partitioner,
		Summary: "the best stages and schedule of all that repeat with each minibatch, by integer programs; ends after its time limit (1m); needs HiGHS",
		Paper:   `A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`, Section: "6.1 to 6.4",
		Solve: solve,
	}}
}

func solve(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := newInstance(r)
	if err != nil {
		return nil, err
	}
	if !milp.Built {
		return nil, fmt.Errorf("%s: %w", name, milp.ErrNoSolver)
	}
	return newSearch(ctx, in).best(ctx)
}

// best returns the best plan that the time allows. Errors: *pipeline.UnfinishedError with that plan, when it is not proved to be
// within the gap of the best possible; those of start; the context's when it was cancelled.
func (s *search) best(ctx context.Context) (*pipeline.Plan, error) {
	plan, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if plan, err = s.near(ctx, plan); err != nil {
		return nil, err
	}
	plan, low, err := s.prove(ctx, plan)
	if err != nil {
		return nil, err
	}
	gap := max(0, plan.Period-low)
	if plan.Predicted.Extra, err = predictions(gap / plan.Period); err != nil {
		return nil, err
	}
	if gap > s.gap()*plan.Period*(1+1e-9) {
		return nil, &pipeline.UnfinishedError{Strategy: name, Best: plan, Gap: roundUp(gap / low)}
	}
	return plan, nil
}

// predictions returns the extra fields of a plan's file: mip_gap is the part of its period, at most, that a better plan would
// save.
func predictions(gap float64) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(gap)
	return map[string]json.RawMessage{"mip_gap": text}, err
}

// roundUp returns a fraction as hundredths of percents, so that messages are short.
func roundUp(x float64) float64 { return math.Ceil(x*1e4) / 1e4 }
