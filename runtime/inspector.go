package runtime

// Inspector is a device whose memory a test or an audit can look at between two pieces of work. Every device that
// computes is one.
type Inspector interface {
	// Peek reads a span of either space into to, which has its length. No work that touches the span is in flight.
	Peek(s Span, to []byte) error
	// Fill writes value to every byte of a span, likewise.
	Fill(s Span, value byte) error
}

// Fill writes value to every byte, at the speed of a copy.
func Fill(b []byte, value byte) {
	if len(b) == 0 {
		return
	}
	b[0] = value
	for n := 1; n < len(b); n += min(n, fillBlock) {
		copy(b[n:], b[:min(n, fillBlock)])
	}
}

// fillBlock is as much as stays in a processor's cache.
const fillBlock = 1 << 18
