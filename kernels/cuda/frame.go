//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// axisArgs describes an axis of an image and of another frame of it.
func axisArgs(a kernels.Axis) C.struct_frame_axis {
	return C.struct_frame_axis{in: C.int(a.In), out: C.int(a.Out), ratio: C.float(a.Ratio), shift: C.float(a.Shift), nearest: flag(a.Nearest)}
}

func addResize(b *builder, op kernels.Resize) {
	rows, columns := op.Axes(b.call.In[0])
	addFramed(b, "resize", C.struct_frame_args{rows: axisArgs(rows), columns: axisArgs(columns)})
}

func addPad(b *builder, op kernels.Pad) {
	x := b.call.In[0].Shape
	rows := kernels.Axis{In: x[1], Out: x[1] + op.Top + op.Bottom}
	columns := kernels.Axis{In: x[2], Out: x[2] + op.Left + op.Right}
	addFramed(b, "pad", C.struct_frame_args{rows: axisArgs(rows), columns: axisArgs(columns), top: C.int(op.Top), left: C.int(op.Left), circular: flag(op.Circular)})
}

// addFramed adds the kernel of a pass.
func addFramed(b *builder, name string, args C.struct_frame_args) {
	x := b.call.In[0]
	y, _ := b.call.Op.Infer(b.call.In)
	args.x, args.y, args.dy, args.dx = b.at(kernels.X, 0), b.at(kernels.Y, 0), b.at(kernels.DY, 0), b.at(kernels.DX, 0)
	args.n, args.c, args.add = C.int(x.Shape[0]), C.int(x.Shape[3]), flag(b.call.Adds(0))
	if b.call.Pass == kernels.Forward {
		addPixels(b, name+"_forward", x.DType, args, y.Shape)
	} else if !b.call.Skips(0) {
		addPixels(b, name+"_backward", x.DType, args, x.Shape)
	}
}
