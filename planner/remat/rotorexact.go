package remat

// rotor-exact: the best memory-persistent sequence, to the byte.
//
// Paper: A. Shilova, thesis (chapter 2, "Rematerialization"); Theorem 6, Algorithms 3 and 4, in which the memory axis of the
// table is a step function instead of an array of slots. No sequence of the same kind is faster at any limit.
//
// Complexity: O(n^3) sums of step functions, each linear in its steps. The number of steps has no polynomial bound (the problem is weakly
// NP-hard, Theorem 4), but few survive in real chains. maxSteps bounds the memory.

import (
	"context"

	"plimsoll/planner/chain"
)

var rotorExact = exact{
	name:  "rotor-exact",
	make:  func(k *costs, limit, cut int64) program { return newPersistent(k, limit, cut) },
	known: exact.pairsOrSlots,
	least: func(ctx context.Context, k *costs) (int64, error) { return k.least(ctx, false), ctx.Err() },
}

// pairsOrSlots returns the excess of the better one of rotor's sequence, in a table of limited size, and of the best one of the
// chain with its layers in pairs.
func (x exact) pairsOrSlots(ctx context.Context, k *costs, limit int64) (int64, error) {
	const cells = 1 << 25
	table, err := k.slotted(ctx, limit+k.a[0], min(DefaultSlots, cells/(k.n*(k.n+1)/2)))
	if err != nil {
		return 0, err
	}
	pairs, err := x.excess(ctx, k.grouped(2), limit)
	return min(table.excess(), pairs), err
}

// Exact computes rotor-exact's frontier. Errors: those of chain.Validate, ErrTooLarge, the context's.
func Exact(ctx context.Context, c *chain.Chain) (*Frontier, error) {
	return rotorExact.frontier(ctx, c)
}

// ExactFrom computes the part of rotor-exact's frontier that begins at a limit at which a sequence exists: what is slower than there
// is left out. Errors: those of Exact.
func ExactFrom(ctx context.Context, c *chain.Chain, memory int64) (*Frontier, error) {
	return rotorExact.from(ctx, c, memory)
}
