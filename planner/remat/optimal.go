package remat

// branch-and-bound: the best of all sequences, proved where the search ends within its budget.
//
// The programs of rotor are optimal among persistent and floating sequences. Lemma 3 of A. Shilova's thesis, by which there are no better
// sequences, is false. Here every sequence that the rules allow is searched, best first (A*), from the plan of rotor-floating or
// rotor-exact on. States with the same contents of memory are merged. A state that cannot be faster than the best plan so far is cut.
//
// Paper: P. E. Hart, N. J. Nilsson, B. Raphael, "A formal basis for the heuristic determination of minimum cost paths", IEEE
// Transactions on Systems Science and Cybernetics, 1968. Complexity: 3^n states at most; the budget is Options.States. Where that ends
// the search, or the chain is longer than maxWindow, parts of the plan are solved in the same way, see improved.

import (
	"cmp"
	"context"
	"errors"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// BranchAndBound is the name of the strategy.
const BranchAndBound = "branch-and-bound"

// DefaultStates bounds the states that a search keeps, of about a hundred bytes each. It is enough for any chain of 12 layers, and for
// more than 20 layers if memory is not at its tightest.
const DefaultStates = 1 << 20

func solveOptimal(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	k, err := newCosts(p.Chain)
	if err != nil {
		return nil, err
	}
	p.States = cmp.Or(p.States, DefaultStates)
	start, err := k.restricted().solve(ctx, p)
	small, refused := errors.AsType[*pipeline.InfeasibleError](err)
	cut := int64(infinite)
	switch {
	case err != nil && (!refused || k.n > maxWindow):
		return nil, refusedBy(err)
	case !refused:
		cut = k.excessOf(start)
	}
	if k.n > maxWindow {
		return k.improved(ctx, p, start)
	}
	f, err := k.wholeSpace(p.Memory).search(ctx, cut, p.States)
	switch {
	case err != nil:
		return nil, err
	case f.seq != nil:
		start = f.seq
	case refused:
		return nil, k.refuse(ctx, p, small.Smallest)
	}
	if p.Proved != nil && p.Link.Bandwidth == 0 {
		p.Proved(k.seconds(f.least))
	}
	if f.optimal() {
		return start, nil
	}
	return k.improved(ctx, p, start)
}

// longFloating is the longest chain that starts from rotor-floating's plan, which takes the fifth power of its length.
const longFloating = 20

// restricted returns the program whose plan the search begins with.
func (k *costs) restricted() exact {
	if k.n > longFloating {
		return rotorExact
	}
	return rotorFloating
}

// refusedBy makes the refusal of another program that of the search: of longer chains it knows no less memory.
func refusedBy(err error) error {
	small, ok := errors.AsType[*pipeline.InfeasibleError](err)
	if !ok {
		return err
	}
	refusal := *small
	refusal.Strategy, refusal.Found = BranchAndBound, true
	return &refusal
}

// excessOf returns the excess of a sequence in which no layer saves twice.
func (k *costs) excessOf(seq schedule.Sequence) (ticks int64) {
	for _, op := range seq {
		if op.Kind == schedule.ForwardCheckpoint || op.Kind == schedule.ForwardDiscard {
			ticks += k.repeat(op.Layer, op.Layer)
		}
	}
	return ticks
}

// refuse finds the smallest limit by bisection, up to one that works. Times do not matter. Errors: *pipeline.InfeasibleError.
func (k *costs) refuse(ctx context.Context, p strategy.Problem, works int64) error {
	timeless, found := k.timeless(), false
	for fails := max(p.Memory, -1); fails+1 < works; {
		middle := fails + (works-fails)/2
		f, err := timeless.wholeSpace(middle).search(ctx, infinite, p.States)
		switch {
		case err != nil:
			return err
		case f.seq != nil:
			works = middle
		default:
			fails, found = middle, found || !f.optimal()
		}
	}
	asked := p.Memory
	p.Memory, p.Proved = works, nil
	seq, err := solveOptimal(ctx, p)
	if err != nil {
		return err
	}
	err = infeasible(BranchAndBound, p.Chain, asked, works, seq)
	if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		small.Found = found
	}
	return err
}
