package cpu

import "errors"

var (
	// ErrPath is returned by New for an instruction set that is unknown or that the machine lacks.
	ErrPath = errors.New("no such path")
	// ErrThreads is returned by New for a number of threads that is negative or above MaxThreads.
	ErrThreads = errors.New("bad number of threads")
)
