//go:build !highs

package milp

import "context"

// Built reports whether this build has a solver.
const Built = false

// Solve returns ErrNoSolver.
func (p *Program) Solve(context.Context, Options) (*Solution, error) { return nil, ErrNoSolver }
