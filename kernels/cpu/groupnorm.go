package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// addGroupNorm adds the jobs of each sample: sums of its channels, coefficients, and one pass that applies them.
func addGroupNorm(b *builder, op kernels.GroupNorm) {
	x := b.call.In[0]
	samples, channels := int64(x.Shape[0]), int64(x.Shape[len(x.Shape)-1])
	rows := x.Elements() / samples / channels
	blocks, width := ceil(channels, C.NORM_CHANNELS), min(channels, C.NORM_CHANNELS)
	chunks := max(min(normTasks/blocks, ceil(rows*width, grain)), 1)
	args := C.struct_norm_args{
		rows: C.int64_t(rows), channels: C.int64_t(channels), chunks: C.int64_t(chunks), blocks: C.int64_t(blocks), apply_rows: C.int64_t(rowsPerTask(channels)),
		groups: C.int64_t(op.Groups), weight: b.at(kernels.ParamRole, 0), bias: b.at(kernels.ParamRole, 1),
		dweight: b.at(kernels.DParam, 0), dbias: b.at(kernels.DParam, 1), train: 1, epsilon: C.float(op.Epsilon),
		coef: b.reserve(4 * channels * 4), part: b.reserve(chunks * channels * 2 * 8),
	}
	for n := range samples {
		b.addSample(args, n*rows*channels, n*channels, n > 0)
	}
}

// addSample adds the jobs of a sample, which begins at an element of X and of the saved statistics.
func (b *builder) addSample(args C.struct_norm_args, first, statistic int64, behind bool) {
	at := func(r kernels.Role) C.uint64_t {
		if address := b.at(r, 0); address != 0 {
			return b.offset(address, first)
		}
		return 0
	}
	saved := func(i int) C.uint64_t {
		if address := b.at(kernels.Save, i); address != 0 {
			return address + C.uint64_t(4*statistic)
		}
		return 0
	}
	args.x, args.mean, args.invstd = at(kernels.X), saved(0), saved(1)
	sums, applied := int64(args.chunks*args.blocks), ceil(int64(args.rows), int64(args.apply_rows))
	if b.call.Pass == kernels.Forward {
		args.y = at(kernels.Y)
		addJob(b, C.NORM_MOMENTS, sums, scratch{}, args)
		addJob(b, C.GROUP_STATISTICS, 1, scratch{}, args)
		args.bias = args.coef + C.uint64_t(2*4*args.channels)
		addJob(b, C.NORM_APPLY, applied, scratch{}, args)
		return
	}
	args.dy, args.dx, args.add_dx, args.add_params = at(kernels.DY), at(kernels.DX), flag(b.call.Adds(0)), flag(b.call.AddParams || behind)
	addJob(b, C.NORM_BACKWARD_SUMS, sums, scratch{}, args)
	addJob(b, C.GROUP_PARAMS, 1, scratch{}, args)
	if !b.call.Skips(0) {
		addJob(b, C.GROUP_APPLY, applied, scratch{}, args)
	}
}
