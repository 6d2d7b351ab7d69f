package executor

import (
	"fmt"

	"plimsoll/internal/units"
)

// HostLimitError says that a plan needs more page-locked host memory than it may have.
type HostLimitError struct {
	Limit  int64
	Needed int64 // the smallest limit that would do
	Copies int64 // of which for what the plan offloads; the rest holds the batch, results and a buffer
	// Unplanned: there is no plan yet, and what it offloads comes on top of Needed.
	Unplanned bool
}

func (e *HostLimitError) Error() string {
	if e.Unplanned {
		return fmt.Sprintf("a limit of %s of host memory is too small: before anything is offloaded by a plan, %s are needed", units.Precise(e.Limit), units.Precise(e.Needed))
	}
	return fmt.Sprintf("a limit of %s of host memory is too small: the smallest that works for this plan is %s, %s of it for what it offloads",
		units.Precise(e.Limit), units.Precise(e.Needed), units.Bytes(e.Copies))
}
