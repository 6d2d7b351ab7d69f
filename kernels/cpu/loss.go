package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// loss is SoftmaxCrossEntropy.
func (b *builder) loss() {
	rows := b.call.In[1].Elements()
	classes := b.call.In[0].Elements() / rows
	per := rowsPerTask(classes)
	args := C.struct_loss_args{
		logits: b.at(kernels.X, 0), labels: b.at(kernels.X, 1), saved: b.at(kernels.Save, 0),
		result: b.at(kernels.Y, 0), dx: b.at(kernels.DX, 0),
		rows: C.int64_t(rows), classes: C.int64_t(classes),
		accumulate: flag(b.call.Adds(0)), rows_per_task: C.int64_t(per),
	}
	switch {
	case b.call.Pass == kernels.Forward:
		args.row_loss, args.row_hit = b.reserve(rows*8), b.reserve(rows*4)
		addJob(b, C.LOSS_FORWARD, ceil(rows, per), scratch{}, args)
		addJob(b, C.LOSS_TOTAL, 1, scratch{}, args)
	case !b.call.Skips(0):
		addJob(b, C.LOSS_BACKWARD, ceil(rows, per), scratch{}, args)
	}
}

// addElementLoss sums up the losses of chunks, then those of all.
func addElementLoss(b *builder, of kernels.Criterion) {
	n := b.call.In[0].Elements()
	chunks := ceil(n, grain)
	args := C.struct_element_loss_args{
		x: b.at(kernels.X, 0), targets: b.at(kernels.X, 1), result: b.at(kernels.Y, 0), dx: b.at(kernels.DX, 0),
		n: C.int64_t(n), chunk: grain, chunks: C.int64_t(chunks), accumulate: flag(b.call.Adds(0)), of: C.int64_t(of),
	}
	switch {
	case b.call.Pass == kernels.Forward:
		args.losses, args.right = b.reserve(chunks*8), b.reserve(chunks*4)
		addJob(b, C.ELEMENT_LOSS_FORWARD, chunks, scratch{}, args)
		addJob(b, C.ELEMENT_LOSS_TOTAL, 1, scratch{}, args)
	case !b.call.Skips(0):
		addJob(b, C.ELEMENT_LOSS_BACKWARD, chunks, scratch{}, args)
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
