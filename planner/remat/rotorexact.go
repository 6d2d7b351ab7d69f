package remat

// rotor-exact: the best memory-persistent sequence, to the byte.
//
// Paper: A. Shilova, thesis (chapter 2, "Rematerialization"); Theorem 6, Algorithms 3 and 4, in which the memory axis of the
// table is a step function instead of an array of slots. No sequence of the same kind is faster at any limit.
//
// Complexity: O(n^3) sums of step functions, each linear in its steps; the number of steps has no polynomial bound
// (the problem is weakly NP-hard, Theorem 4), but few survive in real chains. maxSteps bounds the memory.

import (
	"context"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

var rotorExact = exact{"rotor-exact", func(k *costs, limit int64) program {
	return &persistent{costs: k, limit: limit}
}}

// Exact computes rotor-exact's frontier. Errors: those of chain.Validate, ErrTooLarge, the context's.
func Exact(ctx context.Context, c *chain.Chain) (*Frontier, error) {
	return rotorExact.frontier(ctx, c, schedule.NoLimit)
}
