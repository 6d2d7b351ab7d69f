//go:build cuda && linux && amd64

package cuda

// #include "args.h"
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
	found, err := l.resolve(o.Uses(k))
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	b := &builder{lib: l, address: found}
	addStream(b, "map", "lookup", k.Elements, 4, C.struct_lookup_args{
		x: b.at(kernels.X, 0), table: b.at(kernels.ParamRole, 0), y: b.at(kernels.Y, 0),
		n: C.i64(k.Elements), channels: C.int(k.Channels),
	})
	if b.err != nil {
		return nil, b.err
	}
	return l.launch("lookup", b)
}
