package offload

import "errors"

var (
	// ErrLink means that the problem has no usable link to host memory; the message says how to give one.
	ErrLink = errors.New("offloading needs a link to host memory")
	// ErrOptions means that an option has a value that the strategy cannot use for this chain.
	ErrOptions = errors.New("bad option")
)
