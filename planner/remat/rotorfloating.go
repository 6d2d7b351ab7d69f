package remat

// rotor-floating: the best sequence with floating memory persistence, to the byte. F_i runs only while no activation of index i or more is
// stored, but a stored activation may move on to a later place.
//
// Paper: A. Shilova, thesis, chapter 2, Theorem 5, Algorithms 1 and 2; as printed they miss sequences, see type floating. It is never
// slower than rotor-exact, and on some chains faster; it is not always the best of all sequences (Lemma 3 does not hold in general).
//
// Complexity: O(n^5) sums of step functions, so chains are limited to maxFloating layers.

import (
	"context"

	"plimsoll/planner/chain"
)

var rotorFloating = exact{
	name: "rotor-floating",
	make: func(k *costs, limit, cut int64) program { return newFloating(k, limit, cut) },
	known: func(_ exact, ctx context.Context, k *costs, limit int64) (int64, error) {
		return rotorExact.excess(ctx, k, limit)
	},
	// A program that sees no times has curves of one step at most.
	least: func(ctx context.Context, k *costs) (int64, error) {
		p := newFloating(k.timeless(), k.most(), infinite)
		if err := p.solve(ctx); err != nil {
			return 0, err
		}
		return p.root()[0].bytes, nil
	},
}

// Floating computes rotor-floating's frontier. Errors: those of chain.Validate, ErrTooLarge, the context's.
func Floating(ctx context.Context, c *chain.Chain) (*Frontier, error) {
	return rotorFloating.frontier(ctx, c)
}
