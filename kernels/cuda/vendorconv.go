//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
)

// vendorConv computes a convolution with a library of NVIDIA's.
func (m *multiplication) vendorConv() {
	weight, bias := m.at(kernels.ParamRole, 0), C.u64(0)
	out := m.at(kernels.Y, 0)
	switch m.call.Pass {
	case kernels.Forward:
		bias = m.at(kernels.ParamRole, 1)
	case kernels.BackwardInput:
		out = m.at(kernels.DX, 0)
	case kernels.BackwardParams:
		out = m.at(kernels.DParam, 0)
	}
	if m.dtype == kernels.BFloat16 && m.call.Weight != kernels.BFloat16 && m.call.Pass != kernels.BackwardParams && m.algorithm != cublasBias {
		weight = m.halve(weight, m.weights())
	}
	if m.algorithm == cudnn {
		m.vendorWindow(weight, out)
		if m.call.Pass == kernels.Forward && m.biased() {
			m.sumParts(m.dtype, C.struct_sum_args{partial: out, bias: bias, out: out, n: C.i64(m.outputPixels() * m.out), splits: 1, columns: C.int(m.out)})
		}
	} else {
		m.matrix(matrices{weight: weight, bias: bias, out: out})
	}
	if m.call.Pass == kernels.BackwardParams {
		m.convBias()
	}
}

// vendorWindow is any convolution, by cuDNN.
func (m *multiplication) vendorWindow(weight, out C.u64) {
	d, err := m.lib.describe(m.call.Pass, m.convolution)
	if err != nil {
		m.fail("%v", err)
		return
	}
	o := nvidia.Operands{
		X: cu.DevicePtr(m.at(kernels.X, 0)), W: cu.DevicePtr(weight), Y: cu.DevicePtr(m.at(kernels.DY, 0)),
		Workspace: m.reserveAligned(d.Workspace), Bytes: d.Workspace, Add: m.adds(),
	}
	switch m.call.Pass {
	case kernels.Forward:
		o.Y = cu.DevicePtr(out)
	case kernels.BackwardInput:
		o.X = cu.DevicePtr(out)
	case kernels.BackwardParams:
		o.W = cu.DevicePtr(out)
	}
	m.issue(d.Launch(o))
}

var passes = map[kernels.Pass]nvidia.Pass{
	kernels.Forward: nvidia.Forward, kernels.BackwardInput: nvidia.BackwardData, kernels.BackwardParams: nvidia.BackwardFilter,
}

// describe asks cuDNN about a convolution, once.
func (l *Library) describe(p kernels.Pass, c convolution) (*nvidia.Convolution, error) {
	v := l.vendors
	v.mu.Lock()
	defer v.mu.Unlock()
	key := fmt.Sprintf("%v %+v", p, c)
	d, known := v.described[key]
	if !known {
		d.err = l.device.Run(func() (err error) {
			d.Convolution, err = v.convolver.Convolution(c.shape(), passes[p])
			return err
		})
		v.described[key] = d
	}
	return d.Convolution, d.err
}

func (c convolution) shape() nvidia.Shape {
	return nvidia.Shape{
		N: c.n, H: c.h.in, W: c.w.in, C: c.channels, OH: c.h.out, OW: c.w.out, O: c.out, KH: c.h.kernel, KW: c.w.kernel,
		SH: c.h.stride, SW: c.w.stride, PH: c.h.pad, PW: c.w.pad, DH: c.h.dilation, DW: c.w.dilation, Groups: c.groups,
		BFloat16: c.dtype == kernels.BFloat16, TF32: c.dtype == kernels.TF32,
	}
}

// halve appends the kernel that packs the float32 weights to bfloat16, and returns where.
func (m *multiplication) halve(weight C.u64, n int64) C.u64 {
	packed := m.reserve(2 * n)
	addStream(m.builder, "map", "cast_f32_bf16", n, 4, C.struct_map_args{a: weight, out: packed, n: C.i64(n)})
	return packed
}
