package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// pool is MaxPool or AvgPool.
func (b *builder) pool(p kernels.AvgPool, forward, backward int64) {
	x := b.call.In[0].Shape
	y, _ := b.call.Op.Infer(b.call.In)
	args := C.struct_pool_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), index: b.at(kernels.Save, 0),
		dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0),
		n: C.int64_t(x[0]), h: C.int64_t(x[1]), w: C.int64_t(x[2]), channels: C.int64_t(x[3]),
		oh: C.int64_t(y.Shape[1]), ow: C.int64_t(y.Shape[2]),
		kh: C.int64_t(p.KernelH), kw: C.int64_t(p.KernelW), sh: C.int64_t(p.StrideH), sw: C.int64_t(p.StrideW),
		ph: C.int64_t(p.PadH), pw: C.int64_t(p.PadW),
		accumulate: flag(b.call.Adds(0)), uneven: flag(p.Uneven()), inside: flag(p.Inside),
	}
	switch {
	case b.call.Pass == kernels.Forward:
		b.poolRows(forward, args, x[0]*y.Shape[1], y.Shape[2]*x[3])
	case !b.call.Skips(0):
		b.poolRows(backward, args, x[0]*x[1], x[2]*x[3])
	}
}

func (b *builder) globalPool() {
	x := b.call.In[0].Shape
	args := C.struct_pool_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0),
		n: C.int64_t(x[0]), h: C.int64_t(x[1]), w: C.int64_t(x[2]), channels: C.int64_t(x[3]),
		accumulate: flag(b.call.Adds(0)),
	}
	switch {
	case b.call.Pass == kernels.Forward:
		addJob(b, C.GLOBALPOOL_FORWARD, int64(x[0])*ceil(int64(x[3]), C.POOL_CHANNELS), scratch{}, args)
	case !b.call.Skips(0):
		b.poolRows(C.GLOBALPOOL_BACKWARD, args, x[0]*x[1]*x[2], x[3])
	}
}

func (b *builder) adaptivePool(op kernels.AdaptiveAvgPool) {
	x := b.call.In[0].Shape
	args := C.struct_pool_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0),
		n: C.int64_t(x[0]), h: C.int64_t(x[1]), w: C.int64_t(x[2]), channels: C.int64_t(x[3]),
		oh: C.int64_t(op.OutH), ow: C.int64_t(op.OutW), accumulate: flag(b.call.Adds(0)),
	}
	switch {
	case b.call.Pass == kernels.Forward:
		addJob(b, C.ADAPTIVEPOOL_FORWARD, int64(x[0])*ceil(int64(x[3]), C.POOL_CHANNELS), scratch{}, args)
	case !b.call.Skips(0):
		b.poolRows(C.ADAPTIVEPOOL_BACKWARD, args, x[0]*x[1], x[2]*x[3])
	}
}

func (b *builder) upsample(op kernels.Upsample) {
	x := b.call.In[0].Shape
	args := C.struct_pool_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0),
		n: C.int64_t(x[0]), h: C.int64_t(x[1]), w: C.int64_t(x[2]), channels: C.int64_t(x[3]),
		kh: C.int64_t(op.Factor), kw: C.int64_t(op.Factor), accumulate: flag(b.call.Adds(0)),
	}
	switch {
	case b.call.Pass == kernels.Forward:
		b.poolRows(C.UPSAMPLE_FORWARD, args, x[0]*x[1], x[2]*x[3]*op.Factor*op.Factor)
	case !b.call.Skips(0):
		b.poolRows(C.UPSAMPLE_BACKWARD, args, x[0]*x[1], x[2]*x[3])
	}
}

// poolRows appends a kernel over so many rows of so many elements.
func (b *builder) poolRows(kernel int64, args C.struct_pool_args, rows, width int) {
	per := rowsPerTask(int64(width))
	args.rows_per_task = C.int64_t(per)
	addJob(b, kernel, ceil(int64(rows), per), scratch{}, args)
}
