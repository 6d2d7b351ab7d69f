package cpu

// #include "job.h"
import "C"

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareLookup implements kernels.Library.
func (l *Library) PrepareLookup(k kernels.Lookup, o kernels.LookupOperands) (runtime.Launch, error) {
	if err := o.Check(k); err != nil {
		return nil, err
	}
	uses, err := l.resolve(o.Uses(k))
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	b := l.newBuilder(uses)
	addJob(b, C.LOOKUP, ceil(k.Elements, grain), scratch{}, C.struct_lookup_args{
		x: b.at(kernels.X, 0), table: b.at(kernels.ParamRole, 0), y: b.at(kernels.Y, 0),
		n: C.int64_t(k.Elements), chunk: grain, channels: C.int64_t(k.Channels),
	})
	return l.launch("lookup", b, uses), nil
}
