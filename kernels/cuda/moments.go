//go:build cuda && linux && amd64

package cuda

// #include "args.h"
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
	found, err := l.resolve(o.Uses(m))
	if err != nil {
		return nil, fmt.Errorf("moments: %w", err)
	}
	b := &builder{lib: l, address: found}
	b.moments(m.Defaults())
	if b.err != nil {
		return nil, b.err
	}
	return l.launch("moments", b)
}

var moveBlock = dim{128, 1, 1}

func (b *builder) moments(m kernels.Moments) {
	addStep(b, "norm", "norm_move", dim{ceil(int64(m.Channels), moveBlock[0]), 1, 1}, moveBlock, 0, C.struct_move_args{
		moments: b.at(kernels.Save, 0), mean: b.at(kernels.ParamRole, 2), _var: b.at(kernels.ParamRole, 3),
		rows: C.i64(m.Rows), stride: C.i64(m.Row() / kernels.Float32.Size()), momentum: C.double(m.Momentum),
		channels: C.int(m.Channels), batches: C.int(m.Batches),
	})
}
