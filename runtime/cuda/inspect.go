//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
)

var _ runtime.Inspector = (*Device)(nil)

// Peek reads a span of either space.
func (d *Device) Peek(s runtime.Span, to []byte) error {
	if int64(len(to)) != s.Bytes {
		return d.wrap("peek", fmt.Errorf("%v into %d bytes", s, len(to)))
	}
	if s.Space == runtime.Host {
		b, err := d.HostBytes(s)
		copy(to, b)
		return err
	}
	at, err := d.Address(s)
	if err != nil || s.Bytes == 0 {
		return err
	}
	return d.use("peek", func() error {
		return d.wrap("peek", callError("cuMemcpyDtoH", cu.MemcpyDtoH(unsafe.Pointer(&to[0]), at, s.Bytes)))
	})
}

// Fill writes value to every byte of a span.
func (d *Device) Fill(s runtime.Span, value byte) error {
	if s.Space == runtime.Host {
		b, err := d.HostBytes(s)
		runtime.Fill(b, value)
		return err
	}
	at, err := d.Address(s)
	if err != nil || s.Bytes == 0 {
		return err
	}
	return d.use("fill", func() error {
		if err := cu.MemsetD8(at, value, s.Bytes); err != nil {
			return d.wrap("fill", callError("cuMemsetD8", err))
		}
		// cuMemsetD8 may return before the fill has ended, and streams do not wait for it. Others are not waited for: one may wait
		// for a message.
		return d.wrap("fill", callError("cuStreamSynchronize", cu.Stream{}.Synchronize()))
	})
}
