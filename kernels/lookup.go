package kernels

import "plimsoll/runtime"

// Lookup turns bytes into numbers through a table for each channel: Y[i] = Table[i mod Channels][X[i]]. Images that travel as
// bytes are normalized so on the device, to the bits that the table has, whatever arithmetic it was made with.
type Lookup struct {
	Elements int64
	Channels int
}

// TableBytes returns the bytes of the tables: 256 float32 a channel.
func (l Lookup) TableBytes() int64 { return 256 * int64(l.Channels) * Float32.Size() }

// LookupOperands binds a lookup to memory.
type LookupOperands struct {
	X     runtime.Span // Elements bytes
	Table runtime.Span // Channels,256 float32
	Y     runtime.Span // Elements float32
}

// Uses lists the operands: the bytes as X, the tables as Params, the numbers as Y.
func (o LookupOperands) Uses(l Lookup) []Use {
	var list uses
	list.add(X, 0, o.X, l.Elements, true, false)
	list.add(ParamRole, 0, o.Table, l.TableBytes(), true, false)
	list.add(Y, 0, o.Y, l.Elements*Float32.Size(), false, true)
	return list
}

// Check refuses, with an *OpError, a lookup whose attributes or operands no library can use.
func (o LookupOperands) Check(l Lookup) error {
	const kind = "lookup"
	switch {
	case l.Elements < 1 || l.Elements > MaxElements:
		return bad(kind, "Elements", "%d: want 1 to %d", l.Elements, int64(MaxElements))
	case l.Channels < 1 || int64(l.Channels) > l.Elements || l.Elements%int64(l.Channels) != 0:
		return bad(kind, "Channels", "%d do not divide %d elements", l.Channels, l.Elements)
	}
	return checkUses(kind, runtime.Arena, o.Uses(l))
}
