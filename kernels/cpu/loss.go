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
