package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// addRearrange gathers forward. Backward scatters, over zeros where not all elements were taken.
func addRearrange(b *builder, op kernels.Rearrange) {
	y, _ := op.Infer(b.call.In)
	n, loops := y.Elements(), op.Used()
	args := C.struct_arrange_args{
		src: b.at(kernels.X, 0), dst: b.at(kernels.Y, 0), n: C.int64_t(n), chunk: grain, from: C.int64_t(op.From), loops: C.int64_t(max(len(loops), 1)),
	}
	args.count[0] = 1 // of an element alone
	for i, l := range loops {
		args.count[i], args.stride[i] = C.int64_t(l.N), C.int64_t(l.Stride)
	}
	if b.call.Pass == kernels.Forward {
		addJob(b, C.ARRANGE_FORWARD, ceil(n, grain), scratch{}, args)
		return
	}
	if b.call.Skips(0) {
		return
	}
	args.src, args.dst, args.accumulate = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
	if all := b.call.In[0].Elements(); n < all && !b.call.Adds(0) {
		b.cleared(args.dst, 1, all, all)
	}
	addJob(b, C.ARRANGE_BACKWARD, ceil(n, grain), scratch{}, args)
}

// rowsWithWeight are rows of as many elements as a parameter has.
func rowsWithWeight(b *builder) C.struct_weigh_args {
	return rowsOfInput(b, b.call.Op.Params(b.call.In)[0].Desc.Elements())
}

// rowsOfInput are the rows of the call's first input, of so many elements.
func rowsOfInput(b *builder, width int64) C.struct_weigh_args {
	return C.struct_weigh_args{
		rows: C.int64_t(b.call.In[0].Elements() / width), width: C.int64_t(width), x_stride: C.int64_t(width), y_stride: C.int64_t(width),
		rows_per_task: C.int64_t(rowsPerTask(width)), columns_per_task: C.int64_t(min(width, grain)),
	}
}

// addWeighed appends rows with a parameter; addWeightGradient the gradient of that.
func addWeighed(b *builder, args C.struct_weigh_args) {
	addJob(b, C.WEIGH_ROWS, ceil(int64(args.rows), int64(args.rows_per_task))*ceil(int64(args.width), int64(args.columns_per_task)), scratch{}, args)
}

func addWeightGradient(b *builder, args C.struct_weigh_args) {
	args.weight, args.accumulate = b.at(kernels.DParam, 0), flag(b.call.AddParams)
	addSums(b, args)
}

func addSums(b *builder, args C.struct_weigh_args) {
	addJob(b, C.WEIGHT_OF_ROWS, ceil(int64(args.width), 64), scratch{}, args)
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
	switch n := b.call.In[0].Elements(); {
	case !multiply:
		b.gradientCopy(0, 0, n, n)
	case !b.call.Skips(0):
		args.x, args.y, args.accumulate = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
		addWeighed(b, args)
	}
}

// addRows adds rows of a parameter: those of a sample's positions, or one. Other rows of its gradient are cleared.
func addRows(b *builder, op kernels.AddRows) {
	x := b.call.In[0].Shape
	row, n := int64(x[2]), b.call.In[0].Elements()
	width := row
	if op.Step > 0 {
		width *= int64(x[1])
	}
	args, first := rowsOfInput(b, width), C.uint64_t(int64(op.First)*row*kernels.Float32.Size())
	if b.call.Pass == kernels.Forward {
		args.x, args.y, args.weight = b.at(kernels.X, 0), b.at(kernels.Y, 0), b.at(kernels.ParamRole, 0)+first
		addWeighed(b, args)
		return
	}
	if !b.call.AddParams {
		elements := int64(op.Rows) * row
		if b.half { // two of them are a float
			elements *= 2
		}
		b.cleared(b.at(kernels.DParam, 0), 1, elements, elements)
	}
	args.y, args.weight, args.accumulate = b.at(kernels.DY, 0), b.at(kernels.DParam, 0)+first, 1
	addSums(b, args)
	b.gradientCopy(0, 0, n, n)
}

// addPrepend copies samples behind the parameter, and gradients back.
func addPrepend(b *builder) {
	x := b.call.In[0]
	first, samples := b.call.Op.Params(b.call.In)[0].Desc.Elements(), int64(x.Shape[0])
	width := x.Elements() / samples
	args := rowsWithWeight(b)
	args.rows, args.y_stride = C.int64_t(samples), C.int64_t(first+width)
	if b.call.Pass == kernels.Forward {
		args.weight, args.y = b.at(kernels.ParamRole, 0), b.at(kernels.Y, 0)
		addWeighed(b, args)
		b.copied(copying{
			src: b.at(kernels.X, 0), dst: b.offset(args.y, first), rows: samples, width: width, srcStride: width, dstStride: first + width,
		})
		return
	}
	args.y = b.at(kernels.DY, 0)
	addWeightGradient(b, args)
	b.gradientCopy(0, first, width, first+width)
}

func addGate(b *builder) {
	x := b.call.In[0]
	samples, channels := int64(x.Shape[0]), int64(x.Shape[len(x.Shape)-1])
	rows, per := x.Elements()/samples/channels, rowsPerTask(channels)
	args := C.struct_gate_args{
		x: b.at(kernels.X, 0), gate: b.at(kernels.X, 1), y: b.at(kernels.Y, 0), rows: C.int64_t(rows), channels: C.int64_t(channels), rows_per_task: C.int64_t(per),
	}
	if b.call.Pass == kernels.Forward {
		addJob(b, C.GATE_FORWARD, samples*ceil(rows, per), scratch{}, args)
		return
	}
	args.dy, args.dx, args.dgate = b.at(kernels.DY, 0), b.at(kernels.DX, 0), b.at(kernels.DX, 1)
	args.add_x, args.add_gate = flag(b.call.Adds(0)), flag(b.call.Adds(1))
	addJob(b, C.GATE_BACKWARD, samples*ceil(channels, 64), scratch{}, args)
}

// functionKernels are forward and backward, by kernels.Function.
var functionKernels = [kernels.Functions][2]int64{
	kernels.Sigmoid: {C.SIGMOID_FORWARD, C.SIGMOID_BACKWARD}, kernels.Tanh: {C.TANH_FORWARD, C.TANH_BACKWARD},
	kernels.HardSigmoid: {C.HARD_SIGMOID_FORWARD, C.HARD_SIGMOID_BACKWARD}, kernels.HardSwish: {C.HARD_SWISH_FORWARD, C.HARD_SWISH_BACKWARD},
	kernels.Leaky:      {C.LEAKY_RELU_FORWARD, C.LEAKY_RELU_BACKWARD},
	kernels.ELU:        {C.ELU_FORWARD, C.ELU_BACKWARD},
	kernels.Softplus:   {C.SOFTPLUS_FORWARD, C.SOFTPLUS_BACKWARD},
	kernels.Mish:       {C.MISH_FORWARD, C.MISH_BACKWARD},
	kernels.Abs:        {C.ABS_FORWARD, C.ABS_BACKWARD},
	kernels.AtLeast:    {C.AT_LEAST_FORWARD, C.AT_LEAST_BACKWARD},
	kernels.AtMost:     {C.AT_MOST_FORWARD, C.AT_MOST_BACKWARD},
	kernels.Exp:        {C.EXP_FORWARD, C.EXP_BACKWARD},
	kernels.Log:        {C.LOG_FORWARD, C.LOG_BACKWARD},
	kernels.Sqrt:       {C.SQRT_FORWARD, C.SQRT_BACKWARD},
	kernels.Reciprocal: {C.RECIPROCAL_FORWARD, C.RECIPROCAL_BACKWARD},
	kernels.Power:      {C.POWER_FORWARD, C.POWER_BACKWARD},
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
		b.activation(functionKernels[op.Of][0], functionKernels[op.Of][1], op.By)
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
