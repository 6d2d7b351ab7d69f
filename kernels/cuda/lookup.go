//go:build cuda && linux && amd64

package cuda

// #include "args.h"
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
	addStream(b, "map", "lookup", k.Elements, 4, C.struct_lookup_args{
		x: b.at(kernels.X, 0), table: b.at(kernels.ParamRole, 0), y: b.at(kernels.Y, 0),
		n: C.i64(k.Elements), channels: C.int(k.Channels),
	})
}
