package cpu

// #include "job.h"
import "C"

import (
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareGuard implements kernels.Library.
func (l *Library) PrepareGuard(g kernels.Guard, o kernels.GuardOperands) (runtime.Launch, error) {
	return l.prepare("guard", o.Check(g), o.Uses(), func(b *builder) { b.guard(g, o) })
}

// guard sums the squares of every gradient in chunks of GuardChunk, then judges the sum of all.
func (b *builder) guard(g kernels.Guard, o kernels.GuardOperands) {
	args := C.struct_guard_args{
		norm: b.at(kernels.Y, 0), scalars: b.at(kernels.ScalarsRole, 0),
		chunk: kernels.GuardChunk, max_norm: decimal(g.MaxNorm),
	}
	first := b.at(kernels.Workspace, 0)
	for i := range o.Grads {
		n := o.Elements(i)
		b.half = o.Type(i) == kernels.BFloat16
		args.grad, args.n, args.partials = b.at(kernels.DParam, i), C.int64_t(n), first+C.uint64_t(8*args.parts)
		parts := kernels.GuardPartials(n)
		if parts > 0 {
			addJob(b, C.GUARD_SQUARES, parts, scratch{}, args)
		}
		args.parts += C.int64_t(parts)
	}
	b.half = false
	if o.Judges() {
		args.partials, args.parts = first, C.int64_t(o.Parts())
		addJob(b, C.GUARD_VERDICT, 1, scratch{}, args)
	}
}
