//go:build highs

package milp

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/bartolsthoorn/gohighs/highs"
)

// Built reports whether this build has a solver.
const Built = true

// Solve finds the least cost, on one thread and with a fixed seed. When the context is cancelled, it returns at once; HiGHS
// cannot be stopped from outside and goes on in the background up to its limit. Errors: the context's, ErrInfeasible, ErrStopped.
func (p *Program) Solve(ctx context.Context, o Options) (*Solution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	found := make(chan result, 1)
	model := p.model(o.Relax)
	go func() {
		s, err := model.Solve(options(o)...)
		found <- result{s, err}
	}()
	select {
	case r := <-found:
		return p.read(r.solution, r.err)
	case <-ctx.Done():
	}
	if o.Seconds > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) { // its own time ends, too, with what it has found
		r := <-found
		return p.read(r.solution, r.err)
	}
	return nil, ctx.Err()
}

// result is the result of HiGHS.
type result struct {
	solution *highs.Solution
	err      error
}

func (p *Program) read(s *highs.Solution, err error) (*Solution, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: HiGHS: %w", ErrStopped, err)
	case s.IsInfeasible():
		return nil, ErrInfeasible
	case !s.HasSolution() || math.IsInf(s.Objective, 0) || len(s.ColValues) != len(p.cost):
		return nil, fmt.Errorf("%w: HiGHS says %v", ErrStopped, s.Status)
	}
	return &Solution{Values: s.ColValues, Objective: s.Objective, Proved: s.IsOptimal()}, nil
}

func options(o Options) []highs.SolveOption {
	list := []highs.SolveOption{
		highs.WithOutput(false), highs.WithThreads(1), highs.WithIntOption("random_seed", 1), highs.WithMIPRelGap(0),
	}
	if o.Nodes > 0 {
		list = append(list, highs.WithIntOption("mip_max_nodes", o.Nodes))
	}
	if o.Iterations > 0 {
		list = append(list, highs.WithIntOption("simplex_iteration_limit", o.Iterations), highs.WithIntOption("ipm_iteration_limit", o.Iterations))
	}
	if o.Seconds > 0 {
		list = append(list, highs.WithTimeLimit(o.Seconds))
	}
	return list
}

func (p *Program) model(relax bool) *highs.Model {
	m := &highs.Model{ColCosts: p.cost, ColLower: p.low, ColUpper: p.high}
	for i, r := range p.rows {
		m.RowLower, m.RowUpper = append(m.RowLower, r.low), append(m.RowUpper, r.high)
		for _, t := range r.terms {
			if t.Coef != 0 {
				m.ConstMatrix = append(m.ConstMatrix, highs.Nonzero{Row: i, Col: int(t.Var), Val: t.Coef})
			}
		}
	}
	if relax {
		return m
	}
	for _, integer := range p.integer {
		kind := highs.Continuous
		if integer {
			kind = highs.Integer
		}
		m.VarTypes = append(m.VarTypes, kind)
	}
	return m
}

// check refuses what is no number, before it reaches the solver.
func (p *Program) check() error {
	for i := range p.cost {
		if math.IsNaN(p.cost[i]) || math.IsInf(p.cost[i], 0) || math.IsNaN(p.low[i]) || math.IsNaN(p.high[i]) {
			return fmt.Errorf("BUG: variable %d has cost %v in [%v, %v]", i, p.cost[i], p.low[i], p.high[i])
		}
	}
	for i, r := range p.rows {
		for _, t := range r.terms {
			if t.Var < 0 || int(t.Var) >= len(p.cost) || math.IsNaN(t.Coef) || math.IsInf(t.Coef, 0) {
				return fmt.Errorf("BUG: row %d has term %+v", i, t)
			}
		}
	}
	return nil
}
