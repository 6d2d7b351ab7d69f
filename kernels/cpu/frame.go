package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// axisArgs describes an axis of an image and of another frame of it.
func axisArgs(a kernels.Axis) C.struct_axis {
	return C.struct_axis{in: C.int64_t(a.In), out: C.int64_t(a.Out), ratio: C.float(a.Ratio), shift: C.float(a.Shift), nearest: flag(a.Nearest)}
}

func addResize(b *builder, op kernels.Resize) {
	rows, columns := op.Axes(b.call.In[0])
	addFramed(b, C.RESIZE_FORWARD, C.RESIZE_BACKWARD, C.struct_frame_args{rows: axisArgs(rows), columns: axisArgs(columns)})
}

func addPad(b *builder, op kernels.Pad) {
	x := b.call.In[0].Shape
	rows := kernels.Axis{In: x[1], Out: x[1] + op.Top + op.Bottom}
	columns := kernels.Axis{In: x[2], Out: x[2] + op.Left + op.Right}
	addFramed(b, C.PAD_FORWARD, C.PAD_BACKWARD, C.struct_frame_args{
		rows: axisArgs(rows), columns: axisArgs(columns), top: C.int64_t(op.Top), left: C.int64_t(op.Left), circular: flag(op.Circular),
	})
}

// addFramed adds the kernel of a pass; backward has the sums of a pixel's channels as scratch.
func addFramed(b *builder, forward, backward int64, args C.struct_frame_args) {
	x := b.call.In[0].Shape
	args.x, args.y, args.dy, args.dx = b.at(kernels.X, 0), b.at(kernels.Y, 0), b.at(kernels.DY, 0), b.at(kernels.DX, 0)
	args.n, args.channels, args.accumulate = C.int64_t(x[0]), C.int64_t(x[3]), flag(b.call.Adds(0))
	kernel, rows, columns, s := forward, args.rows.out, args.columns.out, scratch{}
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		kernel, rows, columns, s = backward, args.rows.in, args.columns.in, b.reserveScratch(4*int64(x[3]))
	}
	per := rowsPerTask(int64(columns) * int64(x[3]))
	args.rows_per_task = C.int64_t(per)
	addJob(b, kernel, ceil(int64(x[0])*int64(rows), per), s, args)
}
