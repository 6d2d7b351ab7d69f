// Package ilp finds the best allocation and schedule at once by integer programs (thesis, chapter 6). It needs HiGHS (package milp).
//
// Every layer is a stage of its own and may be on any device; the schedule repeats with each minibatch. The answer is the best such plan,
// or the best that was found in time with its distance from the bound. Each program answers whether a given period has a schedule; the
// thesis has one program whose period is a variable. Devices, orders and whole waits are taken from the solver, and times from longest
// paths, so its tolerance does not matter. Up to about 8 layers the best plan is mostly proved in seconds.
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
