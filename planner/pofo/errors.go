package pofo

import "errors"

var (
	// ErrTooLarge means that the tables would not fit in reasonable memory or time; the message says what to do.
	ErrTooLarge = errors.New("chain too large")
	// ErrOptions means that an option has a value that the strategy cannot use.
	ErrOptions = errors.New("bad option")
)
