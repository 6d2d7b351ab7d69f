package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/planner/schedule"
)

var (
	// ErrPlatform: a platform breaks the rules of its file; the message names field and value.
	ErrPlatform = errors.New("bad platform")
	// ErrBranches: a chain has branches, which a pipeline would take for parts of one chain.
	ErrBranches = errors.New("the chain has branches: pipelines are for single chains")
	// ErrPlan: a plan cannot be judged at all: a field is missing or has a value without meaning.
	ErrPlan = errors.New("bad pipeline plan")
	// ErrOtherChain: a plan was made for a chain of another name.
	ErrOtherChain = errors.New("the plan is for another chain")
	// ErrInvalid is wrapped by the *InvalidError of a plan that breaks a rule.
	ErrInvalid = errors.New("invalid pipeline plan")
	// ErrInfeasible is wrapped by every *InfeasibleError.
	ErrInfeasible = errors.New("no plan fits")
	// ErrUnfinished is wrapped by every *UnfinishedError.
	ErrUnfinished = errors.New("out of time")
	// ErrDeadlock is wrapped by the *DeadlockError of orders that wait for each other.
	ErrDeadlock = errors.New("deadlock")
)

// InfeasibleError says that a strategy has no plan within the platform's memory. Unknown fields are 0 or nil.
type InfeasibleError struct {
	Strategy string
	Reason   string // what does not fit: "layer 3 (conv3) needs 12 bytes on every device"
	Memory   int64  // the limit asked for, bytes, of one device
	Smallest int64  // the smallest memory of each device, bytes, at which the strategy has a plan
	Found    bool   // Smallest is the smallest memory that was found; a smaller one may work
	Tried    int    // sequences that a search has tried for one that fits; 0: there was none
	Devices  int    // the number of devices at which it has a plan with the memory given
	Best     *Plan  // a plan that only exceeds the memory: the best so far
	// Op is the op that binds, of layer LayerName: in the sequence for Smallest, the one with the highest memory. The zero op of plans
	// for several devices.
	Op        schedule.Op
	LayerName string
}

func (e *InfeasibleError) Error() string {
	if e.Op.Layer > 0 {
		return e.tooSmall()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", e.Strategy, ErrInfeasible)
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	if e.Smallest > 0 {
		that := e.That()
		if e.Found {
			that = "that was " + that
		}
		fmt.Fprintf(&b, "; the smallest memory of each device %s is %s", that, units.ExactBytes(e.Smallest))
	}
	if e.Devices > 0 {
		fmt.Fprintf(&b, "; it works with %d devices", e.Devices)
	}
	return b.String()
}

// tooSmall says which limit works, and which op needs it.
func (e *InfeasibleError) tooSmall() string {
	searched := ""
	if e.Tried > 0 {
		searched = fmt.Sprintf("; %d sequences were tried for less", e.Tried)
	}
	return fmt.Sprintf("%s: a limit of %s is too small: the smallest %s is %s, needed by %v (%s)%s",
		e.Strategy, units.Precise(e.Memory), e.That(), units.Precise(e.Smallest), e.Op, e.LayerName, searched)
}

// That says what is known of Smallest: "that works" or "found".
func (e *InfeasibleError) That() string {
	if e.Found {
		return "found"
	}
	return "that works"
}

// Unwrap makes errors.Is(err, ErrInfeasible) true.
func (e *InfeasibleError) Unwrap() error { return ErrInfeasible }

// UnfinishedError says that the time limit ended a search before its answer was proved best.
type UnfinishedError struct {
	Strategy string
	Best     *Plan   // the best plan so far; nil when none was found
	Gap      float64 // relative distance of its period from the proved bound; +Inf without a plan
}

func (e *UnfinishedError) Error() string {
	if e.Best == nil {
		return fmt.Sprintf("%s: %v before it found a plan: give it a larger time limit", e.Strategy, ErrUnfinished)
	}
	return fmt.Sprintf("%s: %v; the best plan so far is at most %s longer than the best possible", e.Strategy, ErrUnfinished, units.Percent(e.Gap))
}

// Unwrap makes errors.Is(err, ErrUnfinished) true.
func (e *UnfinishedError) Unwrap() error { return ErrUnfinished }

// DeadlockError names tasks that can never run, in a run that stops: each waits for the next, and the last for the first.
type DeadlockError struct {
	Task  int      // position in the plan of the first of the cycle
	Cycle []string // "B1(0)", ...
}

func (e *DeadlockError) Error() string {
	waits := append(slices.Clone(e.Cycle[1:]), e.Cycle[0])
	return fmt.Sprintf("%v: task %d, %s, can never run: it waits for %s", ErrDeadlock, e.Task, e.Cycle[0], strings.Join(waits, ", which waits for "))
}

// Unwrap makes errors.Is(err, ErrDeadlock) true.
func (e *DeadlockError) Unwrap() error { return ErrDeadlock }
