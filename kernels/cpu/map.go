package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// mapped appends an elementwise kernel over the call's first input.
func (b *builder) mapped(kernel int64, args C.struct_map_args) {
	n := b.call.In[0].Elements()
	args.n, args.chunk = C.int64_t(n), grain
	addJob(b, kernel, ceil(n, grain), scratch{}, args)
}

func (b *builder) relu(op kernels.ReLU) {
	switch most := C.float(op.Max); {
	case b.call.Pass == kernels.Forward:
		b.mapped(C.RELU_FORWARD, C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), most: most})
	case !b.call.Skips(0):
		b.mapped(C.RELU_BACKWARD, C.struct_map_args{
			a: b.at(kernels.DY, 0), b: b.at(kernels.Y, 0), out: b.at(kernels.DX, 0), accumulate: flag(b.call.Adds(0)), most: most,
		})
	}
}

// cast rounds to bfloat16 or widens, and does the other with gradients.
func (b *builder) cast(op kernels.Cast) {
	kernel, args := int64(C.NARROW), C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0)}
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		args = C.struct_map_args{a: b.at(kernels.DY, 0), out: b.at(kernels.DX, 0), accumulate: flag(b.call.Adds(0))}
	}
	if (b.call.Pass == kernels.Forward) != (op.To == kernels.BFloat16) {
		kernel = C.WIDEN
	}
	b.mapped(kernel, args)
}

func (b *builder) add() {
	if b.call.Pass == kernels.Forward {
		b.mapped(C.ADD_FORWARD, C.struct_map_args{a: b.at(kernels.X, 0), b: b.at(kernels.X, 1), out: b.at(kernels.Y, 0)})
		return
	}
	n := b.call.In[0].Elements()
	for i := range b.call.In {
		b.gradientCopy(i, 0, n, n)
	}
}

// concat copies each input to its columns of Y, or the columns of DY to the inputs' gradients. Every input has as many rows as Y.
func (b *builder) concat() {
	y, _ := b.call.Op.Infer(b.call.In)
	stride := kernels.JoinedRow(b.call.Op, y)
	rows := y.Elements() / stride
	column := int64(0)
	for i, d := range b.call.In {
		width := d.Elements() / rows
		if b.call.Pass == kernels.Forward {
			b.copied(copying{
				src: b.at(kernels.X, i), dst: b.offset(b.at(kernels.Y, 0), column),
				rows: rows, width: width, srcStride: width, dstStride: stride,
			})
		} else {
			b.gradientCopy(i, column, width, stride)
		}
		column += width
	}
}

// gradientCopy gives input i its columns of DY.
func (b *builder) gradientCopy(i int, column, width, stride int64) {
	src, dst := b.at(kernels.DY, 0), b.at(kernels.DX, i)
	if b.call.Skips(i) || src != 0 && src == dst {
		return
	}
	b.copied(copying{
		src: b.offset(src, column), dst: dst, rows: b.call.In[i].Elements() / width, width: width,
		srcStride: stride, dstStride: width, accumulate: b.call.Adds(i),
	})
}

// slice copies columns of the rows of X, or DY to those of DX; what is left of a gradient that is written is cleared.
func (b *builder) slice(op kernels.Slice) {
	y, _ := op.Infer(b.call.In)
	rows := int64(op.Rows) * int64(y.Shape[0])
	length, width, from := b.call.In[0].Elements()/rows, y.Elements()/rows, int64(op.From)
	c := copying{rows: rows, width: width, srcStride: length, dstStride: width}
	if b.call.Pass == kernels.Forward {
		c.src, c.dst = b.offset(b.at(kernels.X, 0), from), b.at(kernels.Y, 0)
		b.copied(c)
		return
	}
	if b.call.Skips(0) {
		return
	}
	dx := b.at(kernels.DX, 0)
	c.src, c.dst, c.srcStride, c.dstStride, c.accumulate = b.at(kernels.DY, 0), b.offset(dx, from), width, length, b.call.Adds(0)
	b.copied(c)
	if !c.accumulate {
		b.cleared(dx, rows, from, length)
		b.cleared(b.offset(dx, from+width), rows, length-from-width, length)
	}
}

// cleared writes zeros to columns.
func (b *builder) cleared(dst C.uint64_t, rows, width, stride int64) {
	if width > 0 {
		b.copied(copying{dst: dst, rows: rows, width: width, dstStride: stride})
	}
}

// offset moves an address by so many elements of the activations.
func (b *builder) offset(address C.uint64_t, elements int64) C.uint64_t {
	if b.half {
		return address + C.uint64_t(elements*kernels.BFloat16.Size())
	}
	return address + C.uint64_t(elements*kernels.Float32.Size())
}

// copying is a copy of rows between matrices with strides, or zeros; equal strides without gaps make it one run.
type copying struct {
	src, dst                          C.uint64_t
	rows, width, srcStride, dstStride int64
	accumulate                        bool
}

func (b *builder) copied(c copying) {
	if n := c.rows * c.width; c.srcStride == c.width && c.dstStride == c.width {
		addJob(b, C.COPY, ceil(n, grain), scratch{}, C.struct_map_args{
			a: c.src, out: c.dst, n: C.int64_t(n), chunk: grain, accumulate: flag(c.accumulate),
		})
		return
	}
	per, columns := rowsPerTask(c.width), min(c.width, grain)
	addJob(b, C.COPY_COLUMNS, ceil(c.rows, per)*ceil(c.width, columns), scratch{}, C.struct_copy_args{
		src: c.src, dst: c.dst, rows: C.int64_t(c.rows), width: C.int64_t(c.width),
		src_stride: C.int64_t(c.srcStride), dst_stride: C.int64_t(c.dstStride),
		accumulate: flag(c.accumulate), rows_per_task: C.int64_t(per), columns_per_task: C.int64_t(columns),
	})
}

func (b *builder) affine(op kernels.Affine) {
	switch {
	case b.call.Pass == kernels.Forward:
		b.mapped(C.AFFINE, C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), factor: C.float(op.Factor), plus: C.float(op.Plus)})
	case !b.call.Skips(0):
		b.mapped(C.AFFINE, C.struct_map_args{a: b.at(kernels.DY, 0), out: b.at(kernels.DX, 0), factor: C.float(op.Factor), accumulate: flag(b.call.Adds(0))})
	}
}
