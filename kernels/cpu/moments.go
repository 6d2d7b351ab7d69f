package cpu

// #include "job.h"
import "C"

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareMoments implements kernels.Library.
func (l *Library) PrepareMoments(m kernels.Moments, o kernels.MomentsOperands) (runtime.Launch, error) {
	if err := o.Check(m); err != nil {
		return nil, err
	}
	uses, err := l.resolve(o.Uses(m))
	if err != nil {
		return nil, fmt.Errorf("moments: %w", err)
	}
	b := l.newBuilder(uses)
	b.moments(m.Defaults())
	return l.launch("moments", b, uses), nil
}

// moments is one task: the channels of a model are few beside its activations.
func (b *builder) moments(m kernels.Moments) {
	addJob(b, C.NORM_MOVE, 1, scratch{}, C.struct_move_args{
		moments: b.at(kernels.Save, 0), mean: b.at(kernels.ParamRole, 2), var_: b.at(kernels.ParamRole, 3),
		batches: C.int64_t(m.Batches), rows: C.int64_t(m.Rows), channels: C.int64_t(m.Channels),
		stride: C.int64_t(m.Row() / kernels.Float32.Size()), momentum: C.float(m.Momentum),
	})
}
