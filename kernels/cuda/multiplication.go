//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda"
)

// multiplication builds the products of a convolution.
type multiplication struct {
	*builder
	convolution
	algorithm algorithm
	products  space         // of cuBLAS, in the workspace
	fold      C.struct_fold // of the image; see foldImage
}

// space is memory in the workspace that all products of a call use, one after the other.
type space struct {
	at    cu.DevicePtr
	bytes int64
}

// biased reports whether the op has a bias.
func (m *multiplication) biased() bool { return len(m.call.Op.Params(m.call.In)) > 1 }

func (m *multiplication) issue(l cuda.Launch) { m.steps = append(m.steps, step{call: l}) }

// reserveAligned takes bytes of the workspace, and what aligning them may cost.
func (m *multiplication) reserveAligned(bytes int64) cu.DevicePtr {
	if bytes == 0 {
		return 0
	}
	at := m.reserve(bytes + vendorAlignment - kernels.Alignment)
	return cu.DevicePtr((at + vendorAlignment - 1) / vendorAlignment * vendorAlignment)
}

// vendorAlignment is the alignment of a vendor's workspace in bytes.
const vendorAlignment = 256

// sumThreads is the number of threads of a block that adds up splits: few, as results in splits are small.
const sumThreads = 64

// sumParts appends the kernel that adds up splits of a product of type d.
func (m *multiplication) sumParts(d kernels.DType, args C.struct_sum_args) {
	threads := int64(sumThreads)
	if args.splits == 1 {
		threads = streamThreads
	}
	addStep(m.builder, "pack", "sum_parts"+suffix(d.Stored()), dim{ceil(int64(args.n), 4*threads), 1, 1}, dim{threads, 1, 1}, 0, args)
}

// rounding says how kernels round the weights of products of a type.
func rounding(d kernels.DType) C.int {
	return C.int(map[kernels.DType]uint32{kernels.BFloat16: C.TO_BF16, kernels.TF32: C.TO_TF32}[d])
}

// convBias is the bias's gradient, where there is one.
func (m *multiplication) convBias() {
	if m.biased() {
		m.columns(m.at(kernels.DY, 0), m.at(kernels.DParam, 1), m.dtype.Stored(), m.outputPixels(), m.out, m.call.AddParams)
	}
}
