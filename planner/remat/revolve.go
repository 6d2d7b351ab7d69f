package remat

// revolve: the optimal sequence of automatic differentiation, made valid for deep learning frameworks.
//
// Paper: A. Griewank, A. Walther, "Evaluating derivatives", SIAM, 2008, for the AD model with heterogeneous costs; the
// comparison in A. Shilova, thesis, section 2.4.4, for the conversion: activations are stored as a_i only, and each
// backward is preceded by its forward_all. That adds the same time to every sequence of the AD model, so that the
// fastest sequence of this form is the AD optimum, converted.
// Memory is counted for the sequence that is returned: to the byte, with ā_s and the overheads while B_s runs.
//
// Complexity: as rotor-exact, without the choice of F^all.

import (
	"context"

	"plimsoll/planner/chain"
)

var revolve = exact{
	name: "revolve",
	make: func(k *costs, limit, cut int64) program {
		p := newPersistent(k, limit, cut)
		p.plain = true
		return p
	},
	least: func(ctx context.Context, k *costs) (int64, error) { return k.least(ctx, true), ctx.Err() },
}

// Revolve computes revolve's frontier. Errors: those of chain.Validate, ErrTooLarge, the context's.
func Revolve(ctx context.Context, c *chain.Chain) (*Frontier, error) {
	return revolve.frontier(ctx, c)
}
