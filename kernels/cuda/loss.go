//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"math/bits"

	"plimsoll/kernels"
)

const lossThreads = 256 // LOSS_THREADS in src/loss.cu

// lossBlock is a warp at least, and no more threads than classes want: those of pixels are few.
func lossBlock(classes int64) dim {
	return dim{min(max(32, int64(1)<<bits.Len64(uint64(classes-1))), lossThreads), 1, 1}
}

// loss is softmax with cross entropy; rows first, then their total.
func (b *builder) loss() {
	x := b.call.In[0]
	rows := b.call.In[1].Elements()
	args := C.struct_loss_args{
		logits: b.at(kernels.X, 0), labels: b.at(kernels.X, 1), saved: b.at(kernels.Save, 0), result: b.at(kernels.Y, 0),
		dx: b.at(kernels.DX, 0), rows: C.int(rows), classes: C.int(channels(x)), add: flag(b.call.Adds(0)),
	}
	grid, block := dim{min(rows, maxRowBlocks), 1, 1}, lossBlock(channels(x))
	name := suffix(x.DType)
	if b.call.Pass == kernels.Forward {
		args.row_loss, args.row_hit = b.reserve(8*rows), b.reserve(4*rows)
		addStep(b, "loss", "loss_forward"+name, grid, block, 0, args)
		addStep(b, "loss", "loss_total", dim{1, 1, 1}, dim{lossThreads, 1, 1}, 0, args)
	} else if !b.call.Skips(0) {
		addStep(b, "loss", "loss_backward"+name, grid, block, 0, args)
	}
}

// addElementLoss sums up the losses of blocks, then those of all.
func addElementLoss(b *builder, of kernels.Criterion) {
	x := b.call.In[0]
	blocks := min(ceil(x.Elements(), lossThreads), maxRowBlocks)
	args := C.struct_element_loss_args{
		x: b.at(kernels.X, 0), targets: b.at(kernels.X, 1), result: b.at(kernels.Y, 0), dx: b.at(kernels.DX, 0),
		n: C.i64(x.Elements()), blocks: C.int(blocks), add: flag(b.call.Adds(0)), of: C.int(of),
	}
	if b.call.Pass == kernels.Forward {
		args.losses, args.right = b.reserve(8*blocks), b.reserve(4*blocks)
		addStep(b, "loss", "element_loss_forward"+suffix(x.DType), dim{blocks, 1, 1}, dim{lossThreads, 1, 1}, 0, args)
		addStep(b, "loss", "element_loss_total", dim{1, 1, 1}, dim{lossThreads, 1, 1}, 0, args)
	} else if !b.call.Skips(0) {
		addStream(b, "loss", "element_loss_backward"+suffix(x.DType), x.Elements(), wide(x.DType), args)
	}
}

// addLoss adds the kernels of any loss.
func addLoss(b *builder, op kernels.Op) {
	if l, elements := op.(kernels.ElementLoss); elements {
		addElementLoss(b, l.Of)
	} else {
		b.loss()
	}
}
