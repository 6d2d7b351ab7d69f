package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// dropout is the same map in both directions; outside training it is a copy.
func (b *builder) dropout(op kernels.Dropout) {
	in, out := b.at(kernels.X, 0), b.at(kernels.Y, 0)
	if b.call.Pass != kernels.Forward {
		in, out = b.at(kernels.DY, 0), b.at(kernels.DX, 0)
		if b.call.Skips(0) {
			return
		}
	}
	n := b.call.In[0].Elements()
	adds := b.call.Pass != kernels.Forward && b.call.Adds(0)
	if !b.call.Train {
		if in == 0 || in != out {
			b.copied(copying{src: in, dst: out, rows: 1, width: n, srcStride: n, dstStride: n, accumulate: adds})
		}
		return
	}
	addJob(b, C.DROPOUT, ceil(n, grain), scratch{}, C.struct_dropout_args{
		in: in, out: out, scalars: b.at(kernels.ScalarsRole, 0), n: C.int64_t(n), chunk: grain, accumulate: flag(adds),
		salt: C.uint64_t(b.call.Salt), threshold: C.uint32_t(op.Threshold()), scale: C.float(1 / (1 - float64(op.P))),
	})
}
