package runtime

// Stager is a device whose memory the program does not reach: what comes from another process, or goes there, is staged in page-locked
// host memory.
type Stager interface {
	// NewStaging allocates host memory for one message of at most so many bytes. It is given back by the device's Close.
	NewStaging(name string, bytes int64) (Staging, error)
}

// Staging is one end of a way of messages. Its launches go to one stream, and messages are handled in the order of these.
type Staging interface {
	// Send returns a launch that passes the bytes of a span of the arena to the function send. It runs on a goroutine of the staging,
	// after all earlier work of its stream. The stream goes on when they are copied; the next message waits for send to return.
	Send(src Span, send func(p []byte) error) (Launch, error)
	// Receive returns a launch that has receive fill the staging, likewise, and copies that into a span of the arena. The stream goes
	// on behind it.
	Receive(dst Span, receive func(p []byte) error) (Launch, error)
}

// Enqueuer is a device on whose streams other libraries enqueue work of their own.
type Enqueuer interface {
	// Free returns the bytes of the device's memory that nobody has.
	Free() (int64, error)
	// Run calls f with the device current on f's thread.
	Run(f func() error) error
	// Enqueue returns a launch that calls do with the address of a span of the arena and the stream, as libraries take them. The
	// call of do returns before the work has run.
	Enqueue(name string, s Span, do func(address, stream uintptr) error) (Launch, error)
}
