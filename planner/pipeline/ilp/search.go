package ilp

import (
	"context"
	"errors"
	"time"

	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// search: how good the best plan is, by programs for periods between what no schedule is below and the best plan's.
//
// Whatever runs with a period runs with a longer one in the same memory: with all starts moved apart. So one answer holds for all
// shorter, or all longer, periods. Two questions alternate. The first asks for a schedule just below the best, and ends the search when
// there is none. The second asks for a schedule in the middle, and halves the open range either way. Each may take half of the time that is
// left. When that is not enough, a period nearer to the lower bound is asked: there it is easier to see that there is no schedule.

// leastPart is the smallest part of what is open, above the lower bound, that is asked about.
const leastPart = 1.0 / 16

// search is a search with its clock.
type search struct {
	*instance
	limit time.Duration
	end   time.Time // never zero
	solve func(context.Context, *milp.Program, milp.Options) (*milp.Solution, error)
}

func newSearch(ctx context.Context, in *instance) *search {
	s := &search{instance: in, limit: in.TimeLimit}
	s.solve = func(ctx context.Context, p *milp.Program, o milp.Options) (*milp.Solution, error) {
		return p.Solve(ctx, o)
	}
	if deadline, ok := ctx.Deadline(); ok && (s.limit == 0 || time.Until(deadline) < s.limit) {
		s.limit = time.Until(deadline)
	}
	if s.limit == 0 {
		s.limit = defaultLimit
	}
	s.end = time.Now().Add(s.limit)
	return s
}

// run solves a program in a share of the time that is left. Errors: those of milp.
func (s *search) run(ctx context.Context, p *milp.Program, share float64) (*milp.Solution, error) {
	left := time.Until(s.end).Seconds()
	if left <= 0 {
		return nil, context.DeadlineExceeded
	}
	return s.solve(ctx, p, milp.Options{Seconds: left * share})
}

// half returns a function that reports whether half of the time that is left now is over.
func (s *search) half() func() bool {
	middle := time.Now().Add(time.Until(s.end) / 2)
	return func() bool { return time.Now().After(middle) }
}

// gap returns at which relative gap to stop: not below ten times the tolerance of the solver.
func (s *search) gap() float64 { return max(s.Gap, 1e-5) }

// verdict is the answer to a question about a period.
type verdict int

const (
	found    verdict = iota // a plan that is better
	none                    // no schedule has this period
	unclear                 // the programs do not say
	timeOver                // the time was over before they said it
)

// prove improves a plan until its period is within the gap of what no schedule can be below, or the time is over. It returns that
// bound, too. Errors: the context's when it was cancelled.
func (s *search) prove(ctx context.Context, best *pipeline.Plan) (*pipeline.Plan, float64, error) {
	low := s.fastest()
	tried := low // no question below it is open
	near, part := true, 0.5
	for best.Period-tried > s.gap()*best.Period && part >= leastPart {
		period := tried + part*(best.Period-tried)
		if near {
			period = max(tried, best.Period*(1-s.gap()))
		}
		plan, answer, err := s.ask(ctx, period, best.Period, 0.5, nil)
		if err != nil {
			return nil, 0, err
		}
		switch answer {
		case found:
			best = plan
		case none:
			low, tried = period, period
		case unclear:
			tried = period
		case timeOver:
			if !near {
				part /= 2
			}
		}
		near = !near && answer != timeOver
	}
	return best, low, nil
}

// ask looks for a plan of at most a period, which is below a limit, with the layers that are fixed where they are. Errors: the
// context's when it was cancelled.
func (s *search) ask(ctx context.Context, period, limit, share float64, fixed []int) (*pipeline.Plan, verdict, error) {
	for _, strict := range []bool{false, true} {
		g := newProgram(s.instance, period, strict, fixed)
		solution, err := s.run(ctx, &g.Program, share)
		switch {
		case errors.Is(err, milp.ErrInfeasible) && strict:
			return nil, unclear, nil
		case errors.Is(err, milp.ErrInfeasible):
			return nil, none, nil
		case stopped(err):
			return nil, timeOver, nil
		case err != nil:
			return nil, 0, err
		}
		best := s.better(ctx, g, solution)
		if best != nil && best.Period < limit {
			return best, found, nil
		}
	}
	return nil, unclear, nil
}

// better returns the best plan of a solution: its own, or that of the list scheduler for its allocation, which has fewer stages; nil
// when none keeps the memory.
func (s *search) better(ctx context.Context, g *program, solution *milp.Solution) *pipeline.Plan {
	var best *pipeline.Plan
	if p := g.plan(solution); p != nil {
		if p, err := pipeline.Finish(name, s.Request, p); err == nil {
			best = p
		}
	}
	if p, err := s.list(ctx, g.read(solution)); err == nil && (best == nil || p.Period <= best.Period*(1+slack)) {
		best = p
	}
	return best
}

// list schedules an allocation with neighbouring layers of a device as one stage.
func (s *search) list(ctx context.Context, devices []int) (*pipeline.Plan, error) {
	r := s.Request
	r.Stages = stages(devices)
	return periodic.List(ctx, name, r)
}

// defaultLimit ends a search that was given no time, by neither its request nor its context.
const defaultLimit = time.Minute

// stopped reports whether a program had no answer because its time was over.
func stopped(err error) bool {
	return errors.Is(err, milp.ErrStopped) || errors.Is(err, context.DeadlineExceeded)
}

const name = "ilp"
