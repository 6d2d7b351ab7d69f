package world

import "context"

// Way is a directed way between two ranks; messages arrive in the order sent.
type Way struct {
	Name     string // for errors
	From, To int
	Bytes    int64 // of the longest message
}

// Fabric moves messages. Every process opens the same list of ways; each end of a way is used by one goroutine at a time.
type Fabric interface {
	// Open is collective.
	Open(ctx context.Context, ways []Way) error
	// Send returns when p may be written again.
	Send(way int, p []byte) error
	// Receive fills p. A message of another size is an error that names the way and both sizes.
	Receive(way int, p []byte) error
	// Sent returns what this process has sent, without headers: it equals the plan's.
	Sent() (messages, bytes int64)
	// Close makes what waits fail.
	Close() error
}
