package host

import (
	"fmt"

	"plimsoll/runtime"
)

var _ runtime.Inspector = (*Device)(nil)

// Peek reads a span of either space.
func (d *Device) Peek(s runtime.Span, to []byte) error {
	b, err := d.Bytes(s)
	if err != nil {
		return err
	}
	if len(to) != len(b) {
		return d.wrap("peek", fmt.Errorf("%v into %d bytes", s, len(to)))
	}
	copy(to, b)
	return nil
}

// Fill writes value to every byte of a span.
func (d *Device) Fill(s runtime.Span, value byte) error {
	b, err := d.Bytes(s)
	runtime.Fill(b, value)
	return err
}
