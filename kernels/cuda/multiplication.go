//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// sumParts appends the kernel that adds up splits of a product of type d.
func (b *builder) sumParts(d kernels.DType, args C.struct_sum_args) {
	addStream(b, "pack", "sum_parts"+suffix(d.Stored()), int64(args.n), 4, args)
}

// rounding says how kernels round the weights of products of a type.
func rounding(d kernels.DType) C.int {
	return C.int(map[kernels.DType]uint32{kernels.BFloat16: C.TO_BF16, kernels.TF32: C.TO_TF32}[d])
}

// convBias is the bias's gradient, where there is one.
func (b *builder) convBias(c convolution) {
	if b.biased() {
		b.columns(b.at(kernels.DY, 0), b.at(kernels.DParam, 1), c.dtype.Stored(), c.outputPixels(), c.out, b.call.AddParams)
	}
}
