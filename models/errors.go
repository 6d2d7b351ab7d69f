package models

import "errors"

var (
	// ErrUnknown: there is no model of that name; the message lists the known ones.
	ErrUnknown = errors.New("unknown model")
	// ErrConfig: a field of Config has a value that no model can have.
	ErrConfig = errors.New("bad model configuration")
	// ErrGraph: a layer is not a graph with one input, one output and no unused op.
	ErrGraph = errors.New("bad layer")
)
