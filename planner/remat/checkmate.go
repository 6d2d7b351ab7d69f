package remat

// checkmate: the rematerialization of Checkmate as an integer program, for our chains.
//
// Paper: P. Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys 2020, section 4
// (the program, with its frontier-advancing stages) and 5 (two-phase rounding). A node is a layer's forward, whose value
// is ā_l as a whole: the paper knows no difference between a and ā (thesis 2.4.5). Stage t computes, for the first
// time, forward t, or backward 2n+1-t. R[t][i]: forward i runs in stage t; S[t][i]: its value is kept from stage t-1.
//
// Up to checkmateExact layers the integer program is solved, beyond them its relaxation, whose S is rounded and whose R
// follows. The order of computations becomes a sequence (sequenceOf), which is judged by simulation. A rounded solution
// may use more memory than the relaxation said: then smaller budgets are tried, and at last S = 0.
// Size: O(n^2) variables and rows.

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

const (
	checkmateExact = 8  // layers, the loss included, up to which the integer program is solved
	checkmateMost  = 80 // layers up to which the relaxation takes reasonable time

	checkmateNodes      = 2000
	checkmateIterations = 200000
)

// tieBreak is an extra cost of every forward, in chains: of equal solutions the one with fewer forwards is wanted.
const tieBreak = 1e-5

// checkmateBudgets are the shares of the limit that are given to the program, until a sequence fits.
var checkmateBudgets = []float64{1, 0.97, 0.93, 0.88, 0.82, 0.75, 0.65}

func solveCheckmate(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	if err := p.Chain.Validate(); err != nil {
		return nil, err
	}
	if n := p.Chain.Len(); n > checkmateMost {
		return nil, fmt.Errorf("%w: %d layers with the loss, checkmate's limit is %d: group layers", ErrTooLarge, n, checkmateMost)
	}
	sim, err := schedule.NewSimulator(p.Chain)
	if err != nil {
		return nil, err
	}
	for _, share := range checkmateBudgets {
		order, err := checkmateOrder(ctx, p.Chain, share*float64(p.Memory))
		if errors.Is(err, milp.ErrInfeasible) {
			break // smaller budgets are infeasible too
		}
		if err != nil {
			return nil, fmt.Errorf("checkmate: %w", err)
		}
		seq := sequenceOf(order, p.Chain.Len())
		r, err := sim.Run(seq, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			return nil, err
		}
		if r.Peak <= p.Memory {
			return seq, nil
		}
	}
	return checked("checkmate", p, sequenceOf(newKept(p.Chain.Len()).order(), p.Chain.Len()))
}

// checkmateOrder solves the program for a budget. Errors: those of milp.
func checkmateOrder(ctx context.Context, c *chain.Chain, budget float64) ([]compute, error) {
	m := newCheckmate(c, budget)
	o := milp.Options{Relax: c.Len() > checkmateExact, Nodes: checkmateNodes, Iterations: checkmateIterations}
	s, err := m.program.Solve(ctx, o)
	if err != nil {
		return nil, err
	}
	return m.kept(s).order(), nil
}

// checkmate is the program for one budget. Sizes are in budgets, so that the numbers are near 1.
type checkmate struct {
	c       *chain.Chain
	n       int
	unit    float64
	program milp.Program
	run     [][]milp.Var // R[t][i], t = 1..2n, i = 1..n
	keep    [][]milp.Var // S[t][i], t = 1..2n+1; the last is 0
	free    [][]milp.Var // the value of i is dropped in stage t, once forward i+1 has read it
	used    [][]milp.Var // memory in stage t once forward i has run; i = 0: at its start
}

func newCheckmate(c *chain.Chain, budget float64) *checkmate {
	m := &checkmate{c: c, n: c.Len(), unit: max(budget, 1)}
	m.variables()
	for t := 1; t <= 2*m.n; t++ {
		m.dependencies(t)
		m.memory(t)
	}
	return m
}

// last returns the highest forward that is of use in stage t.
func (m *checkmate) last(t int) int { return min(t, 2*m.n+1-t) }

func (m *checkmate) variables() {
	grid := func() [][]milp.Var {
		g := make([][]milp.Var, 2*m.n+2)
		for t := range g {
			g[t] = make([]milp.Var, m.n+1)
		}
		return g
	}
	m.run, m.keep, m.free, m.used = grid(), grid(), grid(), grid()
	forward := 0.0
	for _, l := range m.c.Layers {
		forward += l.ForwardS
	}
	for t := 1; t <= 2*m.n; t++ {
		m.used[t][0] = m.program.Var(0, 0, 1)
		for i := 1; i <= m.last(t); i++ {
			m.run[t][i] = m.program.Binary(m.c.Layer(i).ForwardS + tieBreak*max(forward, 1))
			m.keep[t][i] = m.program.Binary(0)
			m.free[t][i] = m.program.Var(0, 0, 1)
			m.used[t][i] = m.program.Var(0, 0, 1)
		}
	}
}

// keptNext returns S[t][i] as a term, none when forward i is of no use in stage t.
func (m *checkmate) keptNext(t, i int, coef float64) []milp.Term {
	if t > 2*m.n || i > m.last(t) {
		return nil
	}
	return []milp.Term{{Var: m.keep[t][i], Coef: coef}}
}

// dependencies: paper, equations 1b to 1e and 1g.
func (m *checkmate) dependencies(t int) {
	p := &m.program
	for i := 1; i <= m.last(t); i++ {
		if i > 1 {
			p.AtMost(0, milp.Term{Var: m.run[t][i], Coef: 1}, milp.Term{Var: m.run[t][i-1], Coef: -1}, milp.Term{Var: m.keep[t][i-1], Coef: -1})
		}
		before := []milp.Term{{Var: m.keep[t][i], Coef: 1}}
		if t > 1 && i <= m.last(t-1) {
			before = append(before, milp.Term{Var: m.keep[t-1][i], Coef: -1}, milp.Term{Var: m.run[t-1][i], Coef: -1})
		}
		p.AtMost(0, before...)
	}
	for _, i := range m.reads(t) {
		p.AtLeast(1, milp.Term{Var: m.run[t][i], Coef: 1}, milp.Term{Var: m.keep[t][i], Coef: 1})
	}
	if t <= m.n {
		p.Equal(1, milp.Term{Var: m.run[t][t], Coef: 1})
	}
}

// reads returns the forwards whose values the backward of stage t reads.
func (m *checkmate) reads(t int) []int {
	l := 2*m.n + 1 - t
	switch {
	case t <= m.n:
		return nil
	case l == 1:
		return []int{1}
	}
	return []int{l - 1, l}
}

// memory: paper, equations 2 to 6, with the overheads of ours.
func (m *checkmate) memory(t int) {
	p, in := &m.program, func(bytes int64) float64 { return float64(bytes) / m.unit }
	fixed := in(m.c.Activation(0))
	if t > m.n+1 {
		fixed += in(m.c.Gradient(2*m.n + 1 - t))
	}
	start := []milp.Term{{Var: m.used[t][0], Coef: 1}}
	for i := 1; i <= m.last(t); i++ {
		start = append(start, milp.Term{Var: m.keep[t][i], Coef: -in(m.c.Saved(i))})
	}
	p.Equal(fixed, start...)
	for i := 1; i <= m.last(t); i++ {
		m.release(t, i)
		after := []milp.Term{
			{Var: m.used[t][i], Coef: 1}, {Var: m.used[t][i-1], Coef: -1}, {Var: m.run[t][i], Coef: -in(m.c.Saved(i))},
		}
		if i > 1 {
			after = append(after, milp.Term{Var: m.free[t][i-1], Coef: in(m.c.Saved(i - 1))})
		}
		p.Equal(0, after...)
		// While forward i runs, its input is still there.
		peak := []milp.Term{
			{Var: m.used[t][i-1], Coef: 1}, {Var: m.run[t][i], Coef: in(m.c.Saved(i) + m.c.Layer(i).ForwardOverheadBytes)},
		}
		p.AtMost(1, peak...)
	}
	if l := 2*m.n + 1 - t; t > m.n {
		p.AtMost(1-in(m.c.Gradient(l-1)+m.c.Layer(l).BackwardOverheadBytes), milp.Term{Var: m.used[t][m.last(t)], Coef: 1})
	}
}

// release says when the value of i may be dropped after forward i+1. It must be there, forward i+1 must have run,
// nothing later in the stage may read it, and the next stage must not keep it.
func (m *checkmate) release(t, i int) {
	p, free := &m.program, milp.Term{Var: m.free[t][i], Coef: 1}
	if i == m.last(t) || m.readLater(t, i) {
		p.AtMost(0, free)
		return
	}
	p.AtMost(0, free, milp.Term{Var: m.run[t][i+1], Coef: -1})
	p.AtMost(0, free, milp.Term{Var: m.run[t][i], Coef: -1}, milp.Term{Var: m.keep[t][i], Coef: -1})
	p.AtMost(1, append([]milp.Term{free}, m.keptNext(t+1, i, 1)...)...)
}

func (m *checkmate) readLater(t, i int) bool {
	for _, r := range m.reads(t) {
		if r == i {
			return true
		}
	}
	return false
}

// keptSets is S of a solution: keptSets[t][i] says that ā_i is kept from stage t-1 to stage t.
type keptSets [][]bool

// newKept keeps nothing.
func newKept(layers int) keptSets {
	k := make(keptSets, 2*layers+2)
	for t := range k {
		k[t] = make([]bool, layers+1)
	}
	return k
}

// kept rounds S; a set can be kept only if it was there.
func (m *checkmate) kept(s *milp.Solution) keptSets {
	k := newKept(m.n)
	for t := 2; t <= 2*m.n; t++ {
		for i := 1; i <= m.last(t); i++ {
			k[t][i] = s.Value(m.keep[t][i]) > 0.5
		}
	}
	return k
}

// order is the second phase: the forwards that each stage needs, given what it keeps, and its target.
func (k keptSets) order() []compute {
	n := len(k[0]) - 1
	var order []compute
	for t := 1; t <= 2*n; t++ {
		need := make([]bool, n+2)
		l := 2*n + 1 - t
		if t <= n {
			need[t] = true
		} else {
			need[l] = !k[t][l]
			need[l-1] = l > 1 && !k[t][l-1]
		}
		for i := n; i >= 1; i-- {
			need[i] = need[i] || !k[t][i] && (need[i+1] || k[t+1][i] && i < l)
		}
		for i := 1; i <= n; i++ {
			if need[i] {
				order = append(order, compute{layer: i})
			}
		}
		if t > n {
			order = append(order, compute{layer: l, back: true})
		}
	}
	return order
}
