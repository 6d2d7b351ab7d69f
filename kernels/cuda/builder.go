//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda"
)

// step is one kernel of a call, or a call of a vendor's library.
type step struct {
	call             cuda.Launch
	module, function string
	grid, block      [3]uint32
	shared           uint32 // bytes of dynamic shared memory
	args             []byte
}

// builder turns a call into steps. Without operands it only counts the workspace.
type builder struct {
	lib       *Library
	call      kernels.Call
	algorithm algorithm // of a convolution or linear layer
	address   addresses
	steps     []step
	used      int64 // bytes of workspace
	products  space // of cuBLAS, in the workspace
	err       error // the first one
}

// addresses are those of a call's operands on the device.
type addresses map[kernels.Operand]C.u64

// at returns the address of an operand, 0 when the call does not use it.
func (b *builder) at(r kernels.Role, index int) C.u64 {
	return b.address[kernels.Operand{Role: r, Index: index}]
}

// reserve takes bytes of the workspace.
func (b *builder) reserve(bytes int64) C.u64 {
	at := b.used
	b.used += kernels.Align(bytes)
	if base := b.at(kernels.Workspace, 0); base != 0 {
		return base + C.u64(at)
	}
	return 0
}

// fail notes that the call cannot be built.
func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%s: "+format, append([]any{b.call.Op.Kind()}, args...)...)
	}
}

type dim [3]int64

// maxGrid is what CUDA allows along x, y and z.
var maxGrid = dim{1<<31 - 1, 1<<16 - 1, 1<<16 - 1}

// addStep appends a kernel with its argument.
func addStep[T any](b *builder, module, function string, grid, block dim, shared int64, args T) {
	s := step{module: module, function: function, shared: uint32(shared)}
	for i := range grid {
		if grid[i] < 1 || grid[i] > maxGrid[i] {
			b.fail("%s needs a grid of %v blocks, CUDA allows %v: use smaller tensors", function, grid, maxGrid)
			return
		}
		s.grid[i], s.block[i] = uint32(grid[i]), uint32(block[i])
	}
	s.args = append(s.args, unsafe.Slice((*byte)(unsafe.Pointer(&args)), unsafe.Sizeof(args))...)
	b.steps = append(b.steps, s)
}

// suffix is the part of a kernel's name that says the type of activations, or of factors.
func suffix(d kernels.DType) string {
	switch d {
	case kernels.BFloat16:
		return "_bf16"
	case kernels.TF32:
		return "_tf32"
	}
	return "_f32"
}

// wide returns the elements of 16 bytes.
func wide(d kernels.DType) int64 { return 16 / d.Size() }

func ceil(a, b int64) int64 { return (a + b - 1) / b }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// biased reports whether the op has a bias.
func (b *builder) biased() bool { return len(b.call.Op.Params(b.call.In)) > 1 }

// space is memory in the workspace that all products of a call use, one after the other.
type space struct {
	at    cu.DevicePtr
	bytes int64
}

// adds reports whether the pass adds to what its result holds.
func (b *builder) adds() bool {
	return b.call.Pass == kernels.BackwardInput && b.call.Adds(0) || b.call.Pass == kernels.BackwardParams && b.call.AddParams
}

func (b *builder) issue(l cuda.Launch) { b.steps = append(b.steps, step{call: l}) }

// reserveAligned takes bytes of the workspace, and what aligning them may cost.
func (b *builder) reserveAligned(bytes int64) cu.DevicePtr {
	if bytes == 0 {
		return 0
	}
	at := b.reserve(bytes + vendorAlignment - kernels.Alignment)
	return cu.DevicePtr((at + vendorAlignment - 1) / vendorAlignment * vendorAlignment)
}

// vendorAlignment is that of a vendor's workspace in bytes.
const vendorAlignment = 256
