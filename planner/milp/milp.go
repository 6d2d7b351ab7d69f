// Package milp states linear programs with integer variables and solves them with HiGHS, when it is built in.
//
// HiGHS comes as a library to link (build tag highs; it needs a C++ compiler and zlib's development files). Without it Solve returns
// ErrNoSolver, and everything else of the planner works. Counts of nodes and iterations limit the work of a solve, so that the same program
// gives the same answer. A clock limits it only where a user sets one (Options.Seconds).
package milp

import (
	"errors"
	"math"
)

var (
	// ErrNoSolver means that this build has no HiGHS.
	ErrNoSolver = errors.New("this build has no solver for linear programs: install g++ and zlib's development files (Debian: g++ zlib1g-dev) and build with make, which then links HiGHS")
	// ErrInfeasible means that no assignment keeps all rows.
	ErrInfeasible = errors.New("the linear program has no solution")
	// ErrStopped means that the solver reached its limit, or failed, before it had any solution.
	ErrStopped = errors.New("the solver stopped without a solution")
)

// Var names a variable of a Program.
type Var int

// Term is a variable with its coefficient in a row.
type Term struct {
	Var  Var
	Coef float64
}

// Program is: minimize the costs of the variables within their bounds and those of the rows. The zero value is empty.
type Program struct {
	cost, low, high []float64
	integer         []bool
	rows            []row
}

type row struct {
	low, high float64
	terms     []Term
}

// Var adds a variable between two bounds and returns its name.
func (p *Program) Var(cost, low, high float64) Var {
	p.cost, p.low, p.high = append(p.cost, cost), append(p.low, low), append(p.high, high)
	p.integer = append(p.integer, false)
	return Var(len(p.cost) - 1)
}

// Binary adds a variable that is 0 or 1.
func (p *Program) Binary(cost float64) Var {
	v := p.Var(cost, 0, 1)
	p.integer[v] = true
	return v
}

// Integer adds a variable that is a whole number between two bounds.
func (p *Program) Integer(cost, low, high float64) Var {
	v := p.Var(cost, low, high)
	p.integer[v] = true
	return v
}

// AtMost adds the row: the sum of the terms is at most bound.
func (p *Program) AtMost(bound float64, terms ...Term) {
	p.rows = append(p.rows, row{math.Inf(-1), bound, terms})
}

// AtLeast adds the row: the sum of the terms is at least bound.
func (p *Program) AtLeast(bound float64, terms ...Term) {
	p.rows = append(p.rows, row{bound, math.Inf(1), terms})
}

// Equal adds the row: the sum of the terms is value.
func (p *Program) Equal(value float64, terms ...Term) {
	p.rows = append(p.rows, row{value, value, terms})
}

// Options bound the work. Zero values are the solver's own defaults: no limit.
type Options struct {
	Relax      bool // ignore that variables are integer
	Nodes      int  // of the branch-and-bound tree
	Iterations int  // of the simplex or the interior point method, in each linear program
	// Seconds end a search that its user has given a time. The answer then depends on the machine, unlike with the others.
	Seconds float64
}

// Solution is an assignment of all variables.
type Solution struct {
	Values    []float64
	Objective float64
	// Proved is false when a limit stopped the solver with the best assignment so far.
	Proved bool
}

// Value returns the value of a variable.
func (s *Solution) Value(v Var) float64 { return s.Values[v] }
