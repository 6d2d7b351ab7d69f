package residency

import (
	"fmt"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/planner/cycle"
)

// UnknownError is a strategy that there is none of.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown strategy %q: the strategies for weights and state are %s", e.Name, strings.Join(e.Known, ", "))
}

// InfeasibleError says that no plan was found within the limit of device memory.
type InfeasibleError struct {
	Strategy string
	Limit    int64    // bytes
	Smallest int64    // bytes: the smallest limit at which a plan was found
	Op       cycle.Op // that needs Smallest
	Layer    string   // its name
}

func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("%s: a limit of %s is too small: the smallest found is %s, needed by %v (%s)",
		e.Strategy, units.Precise(e.Limit), units.Precise(e.Smallest), e.Op, e.Layer)
}

// HostError says that no plan was found within the limit of host memory.
type HostError struct {
	Strategy        string
	Limit, Smallest int64 // bytes: the limit, and the least host memory of the plans that fit on the device
}

func (e *HostError) Error() string {
	return fmt.Sprintf("%s: %s of host memory are too little: the least found is %s",
		e.Strategy, units.Precise(e.Limit), units.Precise(e.Smallest))
}
