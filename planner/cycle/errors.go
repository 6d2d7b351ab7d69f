package cycle

import (
	"errors"
	"fmt"

	"plimsoll/internal/units"
)

var (
	// ErrBranches: a model whose branches meet has no cyclic plans.
	ErrBranches = errors.New("a model with branches has no plans that move weights and optimizer state")
	// ErrBandwidth: a bandwidth of the link is neither 0 nor a number that times can be divided by.
	ErrBandwidth = errors.New("bad bandwidth")
	// ErrNoSteadyState: the state of a plan does not repeat: copies that nothing waits for fall behind by more and more, or nothing takes time.
	ErrNoSteadyState = errors.New("the plan has no steady state: its copies fall behind by more with every step, or its ops take no time")
)

// RuleError is an op that breaks a rule, whatever the durations and the memory.
type RuleError struct {
	Index  int // position in the sequence, counted from 0; its length when something is wrong at the end of the step
	Op     Op  // the zero Op at the end
	Reason string
}

func (e *RuleError) Error() string {
	if e.Op == (Op{}) {
		return "end of the step: " + e.Reason
	}
	return fmt.Sprintf("op %d (%v): %s", e.Index, e.Op, e.Reason)
}

// LinkError is a copy over a link without bandwidth.
type LinkError struct {
	Index int
	Op    Op
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("op %d (%v): a copy needs a link with a bandwidth above 0 in its direction", e.Index, e.Op)
}

// MemoryError is an op that can never start for want of device memory.
type MemoryError struct {
	Index  int   // position of the op, counted from 0; -1 when what is resident does not fit
	Step   int   // counted from 0
	Op     Op    // the zero Op for what is resident
	InUse  int64 // bytes in use that nothing will free before the op
	Needed int64 // InUse and what the op takes when it starts
	Limit  int64
}

func (e *MemoryError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("what is resident when a step begins takes %s, over the limit of %s", units.Precise(e.Needed), units.Precise(e.Limit))
	}
	return fmt.Sprintf("op %d (%v) of step %d can never start: it needs %s with %s in use, %s together, and the limit is %s",
		e.Index, e.Op, e.Step, units.Bytes(e.Needed-e.InUse), units.Bytes(e.InUse), units.Precise(e.Needed), units.Precise(e.Limit))
}

// HostMemoryError is a plan whose weights, gradients, state and activations do not fit in host memory.
type HostMemoryError struct {
	Needed, Limit int64 // bytes
}

func (e *HostMemoryError) Error() string {
	return fmt.Sprintf("the plan keeps %s in host memory, and the limit is %s", units.Precise(e.Needed), units.Precise(e.Limit))
}
