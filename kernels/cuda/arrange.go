//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// addArranged appends a kernel of arrange.cu over n elements.
func addArranged[T any](b *builder, function string, n int64, args T) {
	addStream(b, "arrange", function+suffix(b.call.In[0].DType), n, 1, args)
}

// addRearrange gathers forward. Backward scatters, over zeros where not all elements were taken.
func addRearrange(b *builder, op kernels.Rearrange) {
	x := b.call.In[0]
	y, _ := op.Infer(b.call.In)
	args := C.struct_arrange_args{in: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), n: C.i64(y.Elements()), from: C.i64(op.From), loops: C.int(len(op.Used()))}
	for i, l := range op.Used() {
		args.count[i], args.stride[i] = C.i64(l.N), C.i64(l.Stride)
	}
	if b.call.Pass == kernels.Forward {
		addArranged(b, "arrange_forward", y.Elements(), args)
		return
	}
	if b.call.Skips(0) {
		return
	}
	args.in, args.out, args.add = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
	if width := channels(x); y.Elements() < x.Elements() && !b.call.Adds(0) {
		rows := x.Elements() / width
		b.strip(x.DType, C.struct_strip_args{out: args.out, rows: C.i64(rows), width: C.int(width), out_stride: C.i64(width)}, width)
	}
	addArranged(b, "arrange_backward", y.Elements(), args)
}

// rowsWithWeight are rows of as many elements as a parameter has.
func rowsWithWeight(b *builder) C.struct_weigh_args {
	return rowsOfInput(b, b.call.Op.Params(b.call.In)[0].Desc.Elements())
}

// rowsOfInput are the rows of the call's first input, of so many elements.
func rowsOfInput(b *builder, width int64) C.struct_weigh_args {
	return C.struct_weigh_args{rows: C.i64(b.call.In[0].Elements() / width), width: C.i64(width), x_stride: C.i64(width), y_stride: C.i64(width)}
}

func addWeighed(b *builder, args C.struct_weigh_args) {
	addArranged(b, "weigh_rows", int64(args.rows*args.width), args)
}

// weightChunk is the least rows that a block adds up, weightChunks the most parts of a sum.
const (
	weightChunk  = 64
	weightChunks = 256
)

// addWeightGradient appends the gradient of a parameter, by chunks of rows.
func addWeightGradient(b *builder, args C.struct_weigh_args) {
	args.weight, args.add = b.at(kernels.DParam, 0), flag(b.call.AddParams)
	addSums(b, args)
}

// addSums appends sums of rows.
func addSums(b *builder, args C.struct_weigh_args) {
	rows, width := int64(args.rows), int64(args.width)
	chunkRows := max(weightChunk, ceil(rows, weightChunks))
	chunks, columns := ceil(rows, chunkRows), ceil(width, streamThreads)
	args.chunk_rows, args.chunks, args.part = C.i64(chunkRows), C.i64(chunks), b.reserve(chunks*width*8)
	addStep(b, "arrange", "weight_sums"+suffix(b.call.In[0].DType), dim{columns, chunks, 1}, dim{streamThreads, 1, 1}, 0, args)
	addStep(b, "arrange", "weight_total", dim{columns, 1, 1}, dim{streamThreads, 1, 1}, 0, args)
}

// addTrailing is Bias, or Scale, which multiplies. The parameter's gradient comes first: that of the input may lie on what it is made of.
func addTrailing(b *builder, multiply bool) {
	args := rowsWithWeight(b)
	args.weight, args.multiply = b.at(kernels.ParamRole, 0), flag(multiply)
	if b.call.Pass == kernels.Forward {
		args.x, args.y = b.at(kernels.X, 0), b.at(kernels.Y, 0)
		addWeighed(b, args)
		return
	}
	of := args
	if of.y = b.at(kernels.DY, 0); multiply {
		of.x = b.at(kernels.X, 0)
	}
	addWeightGradient(b, of)
	if !multiply {
		passGradient(b)
		return
	}
	if !b.call.Skips(0) {
		args.x, args.y, args.add = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
		addWeighed(b, args)
	}
}

// addRows adds rows of a parameter: those of a sample's positions, or one. Other rows of its gradient are cleared.
func addRows(b *builder, op kernels.AddRows) {
	x := b.call.In[0]
	row := int64(x.Shape[2])
	width := row
	if op.Step > 0 {
		width *= int64(x.Shape[1])
	}
	args, first := rowsOfInput(b, width), C.u64(int64(op.First)*row*kernels.Float32.Size())
	if b.call.Pass == kernels.Forward {
		args.x, args.y, args.weight = b.at(kernels.X, 0), b.at(kernels.Y, 0), b.at(kernels.ParamRole, 0)+first
		addWeighed(b, args)
		return
	}
	if !b.call.AddParams {
		b.strip(kernels.Float32, C.struct_strip_args{out: b.at(kernels.DParam, 0), rows: C.i64(op.Rows), width: C.int(row), out_stride: C.i64(row)}, row)
	}
	args.y, args.weight, args.add = b.at(kernels.DY, 0), b.at(kernels.DParam, 0)+first, 1
	addSums(b, args)
	passGradient(b)
}

// passGradient gives the input the gradient of the output.
func passGradient(b *builder) {
	if !b.call.Skips(0) {
		b.each("pass", C.struct_map_args{a: b.at(kernels.DY, 0), out: b.at(kernels.DX, 0), add: flag(b.call.Adds(0))})
	}
}

// addPrepend copies samples behind the parameter, and gradients back.
func addPrepend(b *builder) {
	x := b.call.In[0]
	first, samples := b.call.Op.Params(b.call.In)[0].Desc.Elements(), int64(x.Shape[0])
	width, args := x.Elements()/samples, rowsWithWeight(b)
	args.rows, args.y_stride = C.i64(samples), C.i64(first+width)
	behind := C.u64(first * x.DType.Size())
	strip := C.struct_strip_args{rows: C.i64(samples), width: C.int(width)}
	if b.call.Pass == kernels.Forward {
		args.weight, args.y = b.at(kernels.ParamRole, 0), b.at(kernels.Y, 0)
		addWeighed(b, args)
		strip.in, strip.out, strip.in_stride, strip.out_stride = b.at(kernels.X, 0), args.y+behind, C.i64(width), C.i64(first+width)
		b.strip(x.DType, strip, first|width)
		return
	}
	args.y = b.at(kernels.DY, 0)
	addWeightGradient(b, args)
	if !b.call.Skips(0) {
		strip.in, strip.out, strip.in_stride, strip.out_stride, strip.add = args.y+behind, b.at(kernels.DX, 0), C.i64(first+width), C.i64(width), flag(b.call.Adds(0))
		b.strip(x.DType, strip, first|width)
	}
}

// gateChannels is GATE_CHANNELS in src/arrange.cu.
const gateChannels = 32

func addGate(b *builder) {
	x := b.call.In[0]
	samples, channels := int64(x.Shape[0]), int64(x.Shape[len(x.Shape)-1])
	args := C.struct_gate_args{
		x: b.at(kernels.X, 0), gate: b.at(kernels.X, 1), y: b.at(kernels.Y, 0), samples: C.i64(samples), rows: C.i64(x.Elements() / samples / channels), channels: C.i64(channels),
	}
	if b.call.Pass == kernels.Forward {
		addArranged(b, "gate_forward", x.Elements(), args)
		return
	}
	args.dy, args.dx, args.dgate = b.at(kernels.DY, 0), b.at(kernels.DX, 0), b.at(kernels.DX, 1)
	args.add_x, args.add_gate = flag(b.call.Adds(0)), flag(b.call.Adds(1))
	addStep(b, "arrange", "gate_backward"+suffix(x.DType), dim{samples * ceil(channels, gateChannels), 1, 1}, dim{streamThreads, 1, 1}, 0, args)
}

// addArrangement adds the ops of this file and of frame.go; false: it is none of them.
func addArrangement(b *builder, op kernels.Op) bool {
	switch op := op.(type) {
	case kernels.Rearrange:
		addRearrange(b, op)
	case kernels.Bias:
		addTrailing(b, false)
	case kernels.Scale:
		addTrailing(b, true)
	case kernels.AddRows:
		addRows(b, op)
	case kernels.Prepend:
		addPrepend(b)
	case kernels.Gate:
		addGate(b)
	case kernels.Affine:
		b.affine(op)
	case kernels.Pointwise:
		b.activation(op.Of.String(), 1, op.By)
	case kernels.Resize:
		addResize(b, op)
	case kernels.Pad:
		addPad(b, op)
	case kernels.GroupNorm:
		addGroupNorm(b, op.Defaults())
	case kernels.ConvTranspose2D:
		addConvTranspose(b)
	default:
		return false
	}
	return true
}
