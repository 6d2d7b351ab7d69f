//go:build cuda && linux && amd64

package cuda

import (
	"math/rand/v2"

	"plimsoll/kernels"
)

// randomTerms adds terms to an attention's scores, or another scale, in half of all cases.
func randomTerms(r *rand.Rand, op kernels.Attention) kernels.Attention {
	if r.IntN(2) == 0 {
		op.Table = 2 + r.IntN(8) // the gradient of a single term is 0, and rounding alone
	}
	if r.IntN(2) == 0 {
		op.Masks, op.MaskHeads = 1+r.IntN(3), r.IntN(2) == 0
	}
	if r.IntN(2) == 0 {
		op.Scale = 0.25
	}
	return op
}
