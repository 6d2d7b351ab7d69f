//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
)

// vendorConv computes a convolution with a library of NVIDIA's.
func (b *builder) vendorConv(c convolution, a algorithm) {
	weight, bias := b.at(kernels.ParamRole, 0), C.u64(0)
	out := b.at(kernels.Y, 0)
	switch b.call.Pass {
	case kernels.Forward:
		bias = b.at(kernels.ParamRole, 1)
	case kernels.BackwardInput:
		out = b.at(kernels.DX, 0)
	case kernels.BackwardParams:
		out = b.at(kernels.DParam, 0)
	}
	if c.dtype == kernels.BFloat16 && b.call.Pass != kernels.BackwardParams && a != cublasBias {
		weight = b.halve(weight, c.weights())
	}
	if a == cudnn {
		b.vendorWindow(c, weight, out)
		if b.call.Pass == kernels.Forward && b.biased() {
			b.sumParts(c.dtype, C.struct_sum_args{partial: out, bias: bias, out: out, n: C.i64(c.outputPixels() * c.out), splits: 1, columns: C.int(c.out)})
		}
	} else {
		b.matrix(c, matrices{weight: weight, bias: bias, out: out}, a)
	}
	if b.call.Pass == kernels.BackwardParams {
		b.convBias(c)
	}
}

// vendorWindow is any convolution, by cuDNN.
func (b *builder) vendorWindow(c convolution, weight, out C.u64) {
	d, err := b.lib.describe(b.call.Pass, c)
	if err != nil {
		b.fail("%v", err)
		return
	}
	o := nvidia.Operands{
		X: cu.DevicePtr(b.at(kernels.X, 0)), W: cu.DevicePtr(weight), Y: cu.DevicePtr(b.at(kernels.DY, 0)),
		Workspace: b.reserveAligned(d.Workspace), Bytes: d.Workspace, Add: b.adds(),
	}
	switch b.call.Pass {
	case kernels.Forward:
		o.Y = cu.DevicePtr(out)
	case kernels.BackwardInput:
		o.X = cu.DevicePtr(out)
	case kernels.BackwardParams:
		o.W = cu.DevicePtr(out)
	}
	b.issue(d.Launch(o))
}
