package cpu

// #include "job.h"
import "C"

import (
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareMoments implements kernels.Library.
func (l *Library) PrepareMoments(m kernels.Moments, o kernels.MomentsOperands) (runtime.Launch, error) {
	return l.prepare("moments", o.Check(m), o.Uses(m), func(b *builder) { b.moments(m.Defaults()) })
}

// moments is one task: the channels of a model are few beside its activations.
func (b *builder) moments(m kernels.Moments) {
	addJob(b, C.NORM_MOVE, 1, scratch{}, C.struct_move_args{
		moments: b.at(kernels.Save, 0), mean: b.at(kernels.ParamRole, 2), var_: b.at(kernels.ParamRole, 3),
		batches: C.int64_t(m.Batches), rows: C.int64_t(m.Rows), channels: C.int64_t(m.Channels),
		stride: C.int64_t(m.Row() / kernels.Float32.Size()), momentum: C.float(m.Momentum),
	})
}
