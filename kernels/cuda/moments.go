//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareMoments implements kernels.Library.
func (l *Library) PrepareMoments(m kernels.Moments, o kernels.MomentsOperands) (runtime.Launch, error) {
	return l.prepare("moments", o.Check(m), o.Uses(m), func(b *builder) { b.moments(m.Defaults()) })
}

var moveBlock = dim{128, 1, 1}

func (b *builder) moments(m kernels.Moments) {
	addStep(b, "norm", "norm_move", dim{ceil(int64(m.Channels), moveBlock[0]), 1, 1}, moveBlock, 0, C.struct_move_args{
		moments: b.at(kernels.Save, 0), mean: b.at(kernels.ParamRole, 2), _var: b.at(kernels.ParamRole, 3),
		rows: C.i64(m.Rows), stride: C.i64(m.Row() / kernels.Float32.Size()), momentum: C.double(m.Momentum),
		channels: C.int(m.Channels), batches: C.int(m.Batches),
	})
}
