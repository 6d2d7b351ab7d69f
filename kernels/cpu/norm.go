package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// normTasks is how many tasks the sums of a BatchNorm are cut into, about.
const normTasks = 32

// norm is BatchNorm: sums, coefficients of each channel, and one pass that applies them.
func (b *builder) norm(op kernels.BatchNorm) {
	x := b.call.In[0]
	channels := int64(x.Shape[len(x.Shape)-1])
	rows := x.Elements() / channels
	blocks := ceil(channels, C.NORM_CHANNELS)
	width := min(channels, C.NORM_CHANNELS)
	chunks := max(min(normTasks/blocks, ceil(rows*width, grain)), 1)
	args := C.struct_norm_args{
		rows: C.int64_t(rows), channels: C.int64_t(channels), chunks: C.int64_t(chunks), blocks: C.int64_t(blocks),
		apply_rows: C.int64_t(rowsPerTask(channels)),
		x:          b.at(kernels.X, 0), y: b.at(kernels.Y, 0), weight: b.at(kernels.ParamRole, 0),
		running_mean: b.at(kernels.ParamRole, 2), running_var: b.at(kernels.ParamRole, 3),
		mean: b.at(kernels.Save, 0), invstd: b.at(kernels.Save, 1),
		relu: flag(op.ReLU), train: flag(b.call.Train && !op.Frozen), epsilon: C.float(op.Epsilon), momentum: C.float(op.Momentum),
	}
	applyTasks := ceil(rows, rowsPerTask(channels))
	if b.call.Pass == kernels.Forward {
		b.normForward(args, applyTasks)
	} else {
		b.normBackward(args, applyTasks)
	}
}

func (b *builder) normForward(args C.struct_norm_args, applyTasks int64) {
	args.residual, args.bias = b.at(kernels.X, 1), b.at(kernels.ParamRole, 1)
	args.update = flag(args.train != 0 && b.call.UpdateStats)
	args.coef = b.reserve(2 * int64(args.channels) * 4)
	if args.train != 0 {
		args.part = b.reserve(int64(args.chunks*args.channels) * 2 * 8)
		addJob(b, C.NORM_MOMENTS, int64(args.chunks*args.blocks), scratch{}, args)
	}
	addJob(b, C.NORM_STATISTICS, 1, scratch{}, args)
	addJob(b, C.NORM_APPLY, applyTasks, scratch{}, args)
}

func (b *builder) normBackward(args C.struct_norm_args, applyTasks int64) {
	args.dy, args.dx, args.dresidual = b.at(kernels.DY, 0), b.at(kernels.DX, 0), b.at(kernels.DX, 1)
	args.dweight, args.dbias = b.at(kernels.DParam, 0), b.at(kernels.DParam, 1)
	args.add_dx, args.add_dresidual = flag(b.call.Adds(0)), flag(b.call.Adds(1))
	args.add_params = flag(b.call.AddParams)
	args.coef = b.reserve(4 * int64(args.channels) * 4)
	args.part = b.reserve(int64(args.chunks*args.channels) * 2 * 8)
	addJob(b, C.NORM_BACKWARD_SUMS, int64(args.chunks*args.blocks), scratch{}, args)
	addJob(b, C.NORM_BACKWARD_PARAMS, 1, scratch{}, args)
	if !b.call.Skips(0) || len(b.call.In) > 1 && !b.call.Skips(1) {
		addJob(b, C.NORM_BACKWARD_APPLY, applyTasks, scratch{}, args)
	}
}
