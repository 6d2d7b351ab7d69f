//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// definition is a convolution or linear layer as its op defines it.
func definition(call kernels.Call) convolution {
	if op, ok := call.Op.(kernels.Linear); ok {
		return dense(op, call.In[0])
	}
	return windowed(call.Op.(kernels.Conv2D).Defaults(), call.In[0])
}

// result is the operand that an algorithm writes, how many elements it has, and the terms of each.
func (c convolution) result(p kernels.Pass) (o kernels.Operand, n, terms int64) {
	taps := c.h.kernel * c.w.kernel
	switch p {
	case kernels.Forward:
		return kernels.Operand{Role: kernels.Y}, c.outputPixels() * c.out, taps * c.depth()
	case kernels.BackwardInput:
		return kernels.Operand{Role: kernels.DX}, c.n * c.h.in * c.w.in * c.channels, taps * c.width()
	}
	return kernels.Operand{Role: kernels.DParam}, c.weights(), c.outputPixels()
}

// definitionArgs are the arguments of the naive kernels of src/proof.cu.
func (b *builder) definitionArgs() (args C.struct_proof_args, out kernels.Operand) {
	c := definition(b.call)
	out, n, terms := c.result(b.call.Pass)
	args = C.struct_proof_args{
		image: b.at(kernels.X, 0), weight: b.at(kernels.ParamRole, 0), gradient: b.at(kernels.DY, 0), out: b.address[out],
		samples: C.i64(n), terms: C.i64(terms), add: flag(b.adds()), round: rounding(c.dtype), narrow: b.narrow(), g: c.geometry(),
	}
	switch b.call.Pass {
	case kernels.Forward:
		args.bias = b.at(kernels.ParamRole, 1)
	case kernels.BackwardInput:
		args.pass = 1
	case kernels.BackwardParams:
		args.pass = 2
	}
	return args, out
}

// typeOf is the type of an operand's elements.
func typeOf(call kernels.Call, o kernels.Operand) kernels.DType {
	switch o.Role {
	case kernels.X, kernels.Y, kernels.DX, kernels.DY:
		return call.In[0].DType
	}
	return kernels.Float32
}

// addEach appends a kernel with one thread for each of n elements, and y rows of them.
func addEach[T any](b *builder, function string, n, y int64, args T) {
	addStep(b, "proof", function, dim{ceil(n, streamThreads), y, 1}, dim{streamThreads, 1, 1}, 0, args)
}

// naive computes a convolution or linear layer by the naive kernel: slowly, and without a workspace.
func (m *multiplication) naive() {
	args, out := m.definitionArgs()
	n := int64(args.samples)
	addEach(m.builder, "naive"+suffix(definition(m.call).dtype)+suffix(typeOf(m.call, out)), n, 1, args)
	if m.call.Pass == kernels.BackwardParams {
		m.convBias()
	}
}
