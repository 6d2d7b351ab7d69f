//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"math"

	"plimsoll/kernels"
)

// candidates lists who computes a call with the sums and roundings that kernels asks for, ours first.
//
// cuDNN rounds its results to the type of the images. So in bfloat16 it is not asked for what has more to come (a bias, a
// sum with what is there), nor for the weights' gradients, which are float32.
func (l *Library) candidates(call kernels.Call, c convolution) []algorithm {
	all := []algorithm{ours}
	if l.warpgroups && c.asynchronous(call.Pass) {
		all = append(all, wgmma)
	}
	all = append(all, l.products(call, c)...)
	more := call.Pass == kernels.BackwardParams || call.Adds(0) || len(call.Op.Params(call.In)) > 1 && call.Pass == kernels.Forward
	if l.vendors.convolver == nil || c.dtype == kernels.BFloat16 && more {
		return all
	}
	if _, err := l.describe(call.Pass, c); err == nil {
		all = append(all, cudnn)
	}
	return all
}

// asynchronous reports whether wgmma can compute a pass: channels are whole vectors of bfloat16.
func (c convolution) asynchronous(p kernels.Pass) bool {
	image, _ := c.folded()
	var counts int64
	switch p {
	case kernels.Forward:
		counts = image.channels | image.depth()
	case kernels.BackwardInput:
		counts = c.out | c.width()
	case kernels.BackwardParams:
		counts = c.width() | image.depth()
	}
	return c.dtype == kernels.BFloat16 && counts%warpgroups.vector == 0
}

// products lists how cuBLAS can compute a call: not at all, if it has a window.
//
// cublasRows is for outputs whose rows are no whole vectors of 16 bytes: cuBLAS has fast products only of matrices whose rows are.
func (l *Library) products(call kernels.Call, c convolution) (all []algorithm) {
	if l.vendors.multiplier == nil || c.groups != 1 || !c.h.pointwise() || !c.w.pointwise() {
		return nil
	}
	all = append(all, cublas)
	half, forward := c.dtype == kernels.BFloat16, call.Pass == kernels.Forward
	if half && call.Pass == kernels.BackwardInput && call.Adds(0) {
		all = append(all, cublasParts)
	}
	biased := forward && len(call.Op.Params(call.In)) > 1
	whole := func(columns int64) bool { return columns%wide(c.dtype.Stored()) == 0 }
	if half && biased && whole(c.channels) && whole(c.out) && c.channels <= maxWidened {
		all = append(all, cublasBias)
	}
	enough := c.out >= 3*C.EDGE_ALIGNMENT && c.outputPixels() >= C.EDGE_ALIGNMENT && max(c.out, c.channels) <= math.MaxInt32/C.EDGE_ALIGNMENT
	if (half && !biased || c.dtype == kernels.TF32) && whole(c.channels) && !whole(c.out) && enough {
		all = append(all, cublasRows)
	}
	return all
}

// maxWidened bounds the channels of what widened computes: kernels count a slice in 32 bits.
const maxWidened = 1 << 23
