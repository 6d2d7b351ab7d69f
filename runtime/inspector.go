package runtime

// Inspector is a device whose memory a test or an audit can look at between two pieces of work. Every device that
// computes is one.
type Inspector interface {
	// Peek reads a span of either space into to, which has its length. No work that touches the span is in flight.
	Peek(s Span, to []byte) error
	// Fill writes value to every byte of a span, likewise.
	Fill(s Span, value byte) error
}
