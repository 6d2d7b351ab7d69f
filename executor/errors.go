package executor

import (
	"errors"
	"fmt"
)

var (
	// ErrTransfers is returned for sequences with offload or prefetch, which no executor path runs yet.
	ErrTransfers = errors.New("offload and prefetch are planned and simulated, but not executed yet: choose a strategy without transfers")
	// ErrStopped is returned by every step after one that failed.
	ErrStopped = errors.New("an earlier step failed; the executor is stopped")
	// ErrNotAddressable is returned when an audit is asked for on a device whose memory cannot be read in place.
	ErrNotAddressable = errors.New("audit needs a device whose arena the program can read, such as cpu")
)

// LayoutError says that the tensors of a step cannot be laid out within the limit, although their sum can.
type LayoutError struct {
	Limit  int64 // bytes of the arena
	Peak   int64 // the plan's peak: static memory and everything alive at one op
	Extent int64 // what the best layout found needs
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("the plan's peak is %d bytes, but its best layout needs %d and the limit is %d: plan for %d bytes less",
		e.Peak, e.Extent, e.Limit, e.Extent-e.Limit)
}

// LimitError says that not even the static memory fits.
type LimitError struct {
	Limit, Static int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("a limit of %d bytes is too small: weights, gradients and optimizer state alone take %d", e.Limit, e.Static)
}
