package flush

import "errors"

var (
	// ErrOptions: an option has a value that a flush schedule does not know; the message says what works.
	ErrOptions = errors.New("bad option")
	// ErrHalves: a schedule that splits the backward got a chain that does not say how long its two halves take.
	ErrHalves = errors.New("the chain does not split its backward")
)

// Bounds of a request, so that a slip of the pen does not fill the memory.
const (
	MostMicrobatches = 1 << 16
	MostChunks       = 1 << 10
	MostWork         = 1 << 20 // stages times microbatches
)
