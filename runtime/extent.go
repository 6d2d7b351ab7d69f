package runtime

import "fmt"

// Extent is the memory that Reserve gave a device. Its methods are the one place where spans are checked, for every
// device.
type Extent struct {
	Device string
	Arena  int64 // bytes
	Host   int64 // bytes
}

// Check refuses, with a *SpanError, a span that is not within its space.
func (x Extent) Check(op string, s Span) error {
	var size int64
	switch s.Space {
	case Arena:
		size = x.Arena
	case Host:
		size = x.Host
	default:
		return x.refuse(op, s, "there is no such space")
	}
	if s.Offset < 0 || s.Bytes < 0 || s.Bytes > size || s.Offset > size-s.Bytes {
		return x.refuse(op, s, fmt.Sprintf("out of bounds: %d bytes of it are reserved", size))
	}
	return nil
}

// CheckHost refuses, with a *SpanError, a span that is not within the host space.
func (x Extent) CheckHost(op string, s Span) error {
	if s.Space != Host {
		return x.refuse(op, s, "is not in the host space")
	}
	return x.Check(op, s)
}

// CheckCopy refuses, with a *SpanError, a copy whose spans are out of bounds, differ in length or overlap.
func (x Extent) CheckCopy(dst, src Span) error {
	if err := x.Check("copy to", dst); err != nil {
		return err
	}
	if err := x.Check("copy from", src); err != nil {
		return err
	}
	if dst.Bytes != src.Bytes {
		return x.refuse("copy to", dst, fmt.Sprintf("has %d bytes, the source has %d", dst.Bytes, src.Bytes))
	}
	if dst.Overlaps(src) {
		return x.refuse("copy to", dst, fmt.Sprintf("overlaps the source %v", src))
	}
	return nil
}

// CheckPeerCopy refuses, with a *SpanError, a copy from x's arena to another device's that CheckCopy would refuse.
func (x Extent) CheckPeerCopy(peer Extent, dst, src Span) error {
	if src.Space != Arena {
		return x.refuse("copy to peer from", src, "peer copies are between arenas")
	}
	if dst.Space != Arena {
		return peer.refuse("copy from peer to", dst, "peer copies are between arenas")
	}
	if err := x.Check("copy to peer from", src); err != nil {
		return err
	}
	if err := peer.Check("copy from peer to", dst); err != nil {
		return err
	}
	if dst.Bytes != src.Bytes {
		return peer.refuse("copy from peer to", dst, fmt.Sprintf("has %d bytes, the source has %d", dst.Bytes, src.Bytes))
	}
	return nil
}

func (x Extent) refuse(op string, s Span, reason string) error {
	return &SpanError{Device: x.Device, Op: op, Span: s, Reason: reason}
}
