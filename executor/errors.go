package executor

import (
	"errors"
	"fmt"
	"strings"

	"plimsoll/executor/internal/hazard"
	"plimsoll/internal/units"
)

// OrderError says that two actions of a step may run at the same time on the same bytes.
type OrderError = hazard.Error

var (
	// ErrStopped is returned by every step after one that failed.
	ErrStopped = errors.New("an earlier step failed; the executor is stopped")
	// ErrNotInspectable is returned when an audit is asked for on a device that is no runtime.Inspector.
	ErrNotInspectable = errors.New("audit needs a device whose memory the program can look at, such as cpu")
	// ErrSlowLink is returned when the link to host memory is too slow to be measured.
	ErrSlowLink = errors.New("the link to host memory is too slow to be measured")
	// ErrNoState is returned when the state of an optimizer is to be offloaded that has none.
	ErrNoState = errors.New("there is no optimizer state to offload")
	// ErrParts is returned when a step is to run in parts and keeps state in host memory.
	ErrParts = errors.New("a step in parts keeps its weights and the optimizer's state on the device")
	// ErrAtOnce is returned when gradients are updated layer by layer and the step needs all of them together.
	ErrAtOnce = errors.New("with offloaded weights a layer is updated as soon as its backward has ended")
)

// LayoutError says that the tensors of a step cannot be laid out within the limit, although their sum can.
type LayoutError struct {
	Limit  int64 // bytes of the arena
	Peak   int64 // the plan's peak: static memory and everything alive at one op
	Extent int64 // what the best layout found needs
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("the plan's peak is %s, but its best layout needs %s and the limit is %s: plan for %s less",
		units.Bytes(e.Peak), units.Precise(e.Extent), units.Precise(e.Limit), units.Bytes(e.Extent-e.Limit))
}

// HostLimitError says that a plan needs more page-locked host memory than it may have.
type HostLimitError struct {
	Limit  int64
	Needed int64 // the smallest limit that would do
	Copies int64 // of which for what the plan offloads; the rest holds the batch, results and a buffer
	State  int64 // of which for optimizer state and weights that live there
	// Unplanned: there is no plan yet, and what it offloads comes on top of Needed.
	Unplanned bool
}

func (e *HostLimitError) Error() string {
	state := ""
	if e.State > 0 {
		state = fmt.Sprintf(" and %s for the state that --offload-state keeps there", units.Bytes(e.State))
	}
	if e.Unplanned {
		return fmt.Sprintf("a limit of %s of host memory is too small: before anything is offloaded by a plan, %s are needed%s", units.Precise(e.Limit), units.Precise(e.Needed), strings.Replace(state, " and ", ", ", 1))
	}
	return fmt.Sprintf("a limit of %s of host memory is too small: the smallest that works for this plan is %s, %s of it for what it offloads%s",
		units.Precise(e.Limit), units.Precise(e.Needed), units.Bytes(e.Copies), state)
}

// LimitError says that not even the static memory fits.
type LimitError struct {
	Limit, Static int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("a limit of %s is too small: weights, gradients and optimizer state alone take %s", units.Precise(e.Limit), units.Precise(e.Static))
}
