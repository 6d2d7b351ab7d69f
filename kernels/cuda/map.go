//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// Threads of a block of the kernels that stream through memory, and vectors of 16 bytes that each takes; see stream in
// src/plimsoll.cuh.
const (
	streamThreads = 256
	streamVectors = 4
)

// streamGrid is the grid for n elements, vector of them at a time.
func streamGrid(n, vector int64) dim {
	return dim{ceil(n, streamThreads*streamVectors*vector), 1, 1}
}

func addStream[T any](b *builder, module, function string, n, vector int64, args T) {
	addStep(b, module, function, streamGrid(n, vector), dim{streamThreads, 1, 1}, 0, args)
}

// each appends a kernel of map.cu over all elements of the first input.
func (b *builder) each(function string, args C.struct_map_args) {
	x := b.call.In[0]
	args.n = C.i64(x.Elements())
	addStream(b, "map", function+suffix(x.DType), x.Elements(), wide(x.DType), args)
}

func (b *builder) relu(op kernels.ReLU) {
	most := C.float(op.Max)
	if b.call.Pass == kernels.Forward {
		b.each("relu_forward", C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), most: most})
	} else if !b.call.Skips(0) {
		b.each("relu_backward", C.struct_map_args{
			a: b.at(kernels.DY, 0), b: b.at(kernels.Y, 0), out: b.at(kernels.DX, 0), add: flag(b.call.Adds(0)), most: most,
		})
	}
}

func (b *builder) add() {
	if b.call.Pass == kernels.Forward {
		b.each("sum", C.struct_map_args{a: b.at(kernels.X, 0), b: b.at(kernels.X, 1), out: b.at(kernels.Y, 0)})
		return
	}
	for i := range b.call.In {
		if !b.call.Skips(i) {
			b.each("pass", C.struct_map_args{a: b.at(kernels.DY, 0), out: b.at(kernels.DX, i), add: flag(b.call.Adds(i))})
		}
	}
}

// cast converts forward to op.To, and the gradient back.
func (b *builder) cast(op kernels.Cast) {
	x := b.call.In[0]
	args := C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), n: C.i64(x.Elements())}
	from, to := x.DType, op.To
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		args.a, args.out, args.add = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
		from, to = to, from
	}
	addStream(b, "map", "cast"+suffix(from)+suffix(to), x.Elements(), 4, args)
}

// dropout in evaluation passes everything.
func (b *builder) dropout(op kernels.Dropout) {
	x := b.call.In[0]
	from, to, add := b.at(kernels.X, 0), b.at(kernels.Y, 0), C.int(0)
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		from, to, add = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
	}
	if !b.call.Train {
		b.each("pass", C.struct_map_args{a: from, out: to, add: add})
		return
	}
	addStream(b, "map", "dropout"+suffix(x.DType), x.Elements(), wide(x.DType), C.struct_dropout_args{
		in: from, out: to, scalars: b.at(kernels.ScalarsRole, 0), salt: C.u64(b.call.Salt), n: C.i64(x.Elements()),
		threshold: C.uint(op.Threshold()), scale: C.float(1 / (1 - float64(op.P))), add: add,
	})
}

// concat copies each input's part of a row to or from its place in the joined rows of the output.
func (b *builder) concat() {
	y, _ := b.call.Op.Infer(b.call.In)
	joined := kernels.JoinedRow(b.call.Op, y)
	rows := y.Elements() / joined
	start := int64(0)
	for i, d := range b.call.In {
		part := d.Elements() / rows
		at := C.u64(start * d.DType.Size())
		args := C.struct_strip_args{rows: C.i64(rows), width: C.int(part)}
		if b.call.Pass == kernels.Forward {
			args.in, args.out = b.at(kernels.X, i), b.at(kernels.Y, 0)+at
			args.in_stride, args.out_stride = C.i64(part), C.i64(joined)
			b.strip(d.DType, args, start|joined)
		} else if !b.call.Skips(i) {
			args.in, args.out = b.at(kernels.DY, 0)+at, b.at(kernels.DX, i)
			args.in_stride, args.out_stride, args.add = C.i64(joined), C.i64(part), flag(b.call.Adds(i))
			b.strip(d.DType, args, start|joined)
		}
		start += part
	}
}

// slice copies columns of the rows of X, or DY to those of DX; what is left of a gradient that is written is cleared.
func (b *builder) slice(op kernels.Slice) {
	x := b.call.In[0]
	y, _ := op.Infer(b.call.In)
	rows := int64(op.Rows) * int64(y.Shape[0])
	length, width, from := x.Elements()/rows, y.Elements()/rows, int64(op.From)
	if b.call.Pass == kernels.Forward {
		b.strip(x.DType, C.struct_strip_args{
			in: b.at(kernels.X, 0) + C.u64(from*x.DType.Size()), out: b.at(kernels.Y, 0),
			rows: C.i64(rows), width: C.int(width), in_stride: C.i64(length), out_stride: C.i64(width),
		}, from|length)
		return
	}
	if b.call.Skips(0) {
		return
	}
	put := func(in C.u64, from, width int64) {
		b.strip(x.DType, C.struct_strip_args{
			in: in, out: b.at(kernels.DX, 0) + C.u64(from*x.DType.Size()), add: flag(b.call.Adds(0)),
			rows: C.i64(rows), width: C.int(width), in_stride: C.i64(width), out_stride: C.i64(length),
		}, from|length)
	}
	put(b.at(kernels.DY, 0), from, width)
	if !b.call.Adds(0) {
		put(0, 0, from)
		put(0, from+width, length-from-width)
	}
}

// strip moves a strip, if it has any width; others must be whole vectors, as its width, for wide loads.
func (b *builder) strip(d kernels.DType, args C.struct_strip_args, others int64) {
	if args.width == 0 {
		return
	}
	l := newLanes(d, int64(args.width), others, maxStripLanes)
	grid := dim{l.grid, min(ceil(int64(args.rows), l.rows*4), maxRowBlocks), 1}
	addStep(b, "map", "strip"+l.suffix(d), grid, l.block(), 0, args)
}

const (
	maxStripLanes = 64
	maxRowBlocks  = 1 << 14 // along a grid's y
)

func channels(d kernels.Desc) int64 { return int64(d.Shape[len(d.Shape)-1]) }

// lanes is how a block of 256 threads lies on rows of channels: lanes of vector channels each, and rows.
type lanes struct{ vector, lanes, rows, grid int64 }

// newLanes chooses wide loads when the width and everything else that matters is whole vectors, and as many lanes as the
// width needs, up to most.
func newLanes(d kernels.DType, width, others, most int64) lanes {
	l := lanes{vector: wide(d), lanes: 1}
	if (width|others)%l.vector != 0 {
		l.vector = 1
	}
	need := ceil(width, l.vector)
	for l.lanes < need && l.lanes < most {
		l.lanes *= 2
	}
	l.rows = streamThreads / l.lanes
	l.grid = ceil(need, l.lanes)
	return l
}

func (l lanes) block() dim { return dim{l.lanes, l.rows, 1} }

// suffix is the suffix of the kernel's name: "_f32_v4".
func (l lanes) suffix(d kernels.DType) string {
	return suffix(d) + "_v" + string('0'+byte(l.vector))
}

func (b *builder) affine(op kernels.Affine) {
	if b.call.Pass == kernels.Forward {
		b.each("affine", C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), factor: C.float(op.Factor), plus: C.float(op.Plus)})
	} else if !b.call.Skips(0) {
		b.each("affine", C.struct_map_args{a: b.at(kernels.DY, 0), out: b.at(kernels.DX, 0), factor: C.float(op.Factor), add: flag(b.call.Adds(0))})
	}
}
