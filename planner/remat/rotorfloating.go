package remat

// rotor-floating: the best sequence with floating memory persistence, to the byte: F_i runs only while no
// activation of index i or more is stored, but a stored activation may move on to a later place.
//
// Paper: A. Shilova, thesis, chapter 2, Theorem 5, Algorithms 1 and 2; as printed they miss sequences, see type floating. It
// is never slower than rotor-exact, and on some chains faster; it is not always the best of all sequences (Lemma 3
// does not hold in general).
//
// Complexity: O(n^5) sums of step functions, so chains are limited to maxFloating layers.

import (
	"context"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

var rotorFloating = exact{"rotor-floating", func(k *costs, limit int64) program {
	return &floating{costs: k, limit: limit}
}}

// Floating computes rotor-floating's frontier. Errors: those of chain.Validate, ErrTooLarge, the context's.
func Floating(ctx context.Context, c *chain.Chain) (*Frontier, error) {
	return rotorFloating.frontier(ctx, c, schedule.NoLimit)
}
