package ref

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareLookup implements kernels.Library.
func (l *Library) PrepareLookup(k kernels.Lookup, o kernels.LookupOperands) (runtime.Launch, error) {
	if err := o.Check(k); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	var all [3][]byte // bytes, tables, numbers
	for i, u := range o.Uses(k) {
		u.Span.Bytes = u.Bytes
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, fmt.Errorf("ref: lookup: %w", err)
		}
		all[i] = b
	}
	x, table, y := all[0], floats(all[1]), floats(all[2])
	return launch{"lookup", func() error {
		for i := range y {
			y[i] = table[i%k.Channels*256+int(x[i])]
		}
		return nil
	}}, nil
}
