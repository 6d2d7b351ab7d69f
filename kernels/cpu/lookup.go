package cpu

// #include "job.h"
import "C"

import (
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareLookup implements kernels.Library.
func (l *Library) PrepareLookup(k kernels.Lookup, o kernels.LookupOperands) (runtime.Launch, error) {
	return l.prepare("lookup", o.Check(k), o.Uses(k), func(b *builder) { b.lookup(k) })
}

func (b *builder) lookup(k kernels.Lookup) {
	channels := int64(k.Channels)
	pixels, chunk := k.Elements/channels, rowsPerTask(channels)
	addJob(b, C.LOOKUP, ceil(pixels, chunk), scratch{}, C.struct_lookup_args{
		x: b.at(kernels.X, 0), table: b.at(kernels.ParamRole, 0), y: b.at(kernels.Y, 0),
		pixels: C.int64_t(pixels), chunk: C.int64_t(chunk), channels: C.int64_t(channels),
	})
}
