//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"
	"unsafe"

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
	lib     *Library
	call    kernels.Call
	address addresses
	steps   []step
	used    int64 // bytes of workspace
	err     error // the first one
}

// addresses are the addresses of a call's operands on the device.
type addresses map[kernels.Operand]C.u64

// at returns the address of an operand, 0 when the call does not use it.
func (b *builder) at(r kernels.Role, index int) C.u64 {
	return b.address[kernels.Operand{Role: r, Index: index}]
}

// narrow says whether the call's weight is in bfloat16.
func (b *builder) narrow() C.int { return flag(b.call.Weight == kernels.BFloat16) }

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

// adds reports whether the pass adds to what its result holds.
func (b *builder) adds() bool {
	return b.call.Pass == kernels.BackwardInput && b.call.Adds(0) || b.call.Pass == kernels.BackwardParams && b.call.AddParams
}

// updater builds the updates of optimizers.
type updater struct{ *builder }
