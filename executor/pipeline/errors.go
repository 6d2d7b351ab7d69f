package pipeline

import (
	"errors"
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/internal/units"
)

// none marks the absence of an index.
const none = -1

var (
	// ErrPlan says that a plan cannot be run here; the message names what.
	ErrPlan = order.ErrPlan
	// ErrTied: stages share weights, and the plan updates them at different times.
	ErrTied = errors.New("this plan cannot share weights between layers")
	// ErrStopped is returned by every call after one that failed.
	ErrStopped = errors.New("the pipeline has stopped after an error")
	// ErrNotInspectable is returned when an audit is asked for on a device that is no runtime.Inspector.
	ErrNotInspectable = errors.New("audit needs a device whose memory the program can look at, such as cpu")
)

// OrderError says that two actions of a step may run at the same time on the same bytes.
type OrderError = hazard.Error

// TaskError says on which device, in which stage and for which minibatch a run failed.
type TaskError struct {
	Device    int
	Task      string // "F2", "CB0", "update 2": kind and stage
	Minibatch int
	Err       error
}

func (e *TaskError) Error() string {
	return fmt.Sprintf("device %d, task %s of minibatch %d: %v", e.Device, e.Task, e.Minibatch, e.Err)
}

func (e *TaskError) Unwrap() error { return e.Err }

// LimitError says that a device of the plan needs more memory than it may use.
type LimitError struct {
	Device        int
	Needed, Limit int64 // bytes
	Static        int64 // of what is needed: weights, gradients and optimizer state
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("device %d needs %s (%s of it for weights, gradients and optimizer state), it may use %s",
		e.Device, units.Precise(e.Needed), units.Bytes(e.Static), units.Precise(e.Limit))
}
