//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareGuard implements kernels.Library.
func (l *Library) PrepareGuard(g kernels.Guard, o kernels.GuardOperands) (runtime.Launch, error) {
	return l.prepare("guard", o.Check(g), o.Uses(), func(b *builder) { b.guard(g, o) })
}

// Threads of a block of a guard's kernels, and of a chunk: GUARD_THREADS and GUARD_LANES in src/update.cu.
const guardThreads, guardLanes = 256, 8

var guardBlock = dim{guardThreads, 1, 1}

// guard sums the squares of as many gradients at a time as a kernel's argument has room for, then judges the total.
func (b *builder) guard(g kernels.Guard, o kernels.GuardOperands) {
	args := C.struct_guard_args{chunk: kernels.GuardChunk}
	total := int64(0)
	flush := func() {
		chunks := int64(args.first[args.count])
		if chunks > 0 {
			args.partials = b.at(kernels.Workspace, 0) + C.u64(8*total)
			addStep(b, "update", "guard_squares", dim{ceil(chunks, guardThreads/guardLanes), 1, 1}, guardBlock, 0, args)
		}
		total += chunks
		args.count = 0
		clear(args.narrow[:])
	}
	for i := range o.Grads {
		n := o.Elements(i)
		if n == 0 {
			continue
		}
		if args.count == C.GUARD_GRADIENTS {
			flush()
		}
		args.grad[args.count], args.n[args.count] = b.at(kernels.DParam, i), C.i64(n)
		if o.Type(i) == kernels.BFloat16 {
			args.narrow[args.count/64] |= 1 << (args.count % 64)
		}
		args.first[args.count+1] = args.first[args.count] + C.int(kernels.GuardPartials(n))
		args.count++
	}
	flush()
	if !o.Judges() {
		return
	}
	addStep(b, "update", "guard_verdict", dim{1, 1, 1}, guardBlock, 0, C.struct_verdict_args{
		partials: b.at(kernels.Workspace, 0), norm: b.at(kernels.Y, 0), scalars: b.at(kernels.ScalarsRole, 0),
		parts: C.i64(o.Parts()), max_norm: decimal(g.MaxNorm),
	})
}
