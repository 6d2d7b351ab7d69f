package remat

import "errors"

var (
	// ErrOptions means that an option has a value that the strategy cannot use for this chain.
	ErrOptions = errors.New("bad option")
	// ErrTooLarge means that the tables of the algorithm would not fit in reasonable memory or time. Nothing is ever
	// approximated instead; the message says what to do.
	ErrTooLarge = errors.New("chain too large")
)
