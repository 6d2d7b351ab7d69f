package schedule

import (
	"errors"
	"fmt"

	"plimsoll/internal/units"
)

var (
	// ErrUnknownOp: an op has a name that is none of the kinds.
	ErrUnknownOp = errors.New("unknown op")
	// ErrNoLink: a sequence with offloads or prefetches is simulated without a bandwidth.
	ErrNoLink = errors.New("the sequence has transfers: a link with a bandwidth above 0 is needed")
	// ErrEndless: the makespan is not a finite number.
	ErrEndless = errors.New("the makespan is too long for a number: the times of the chain or the bandwidth cannot be meant")
)

// ParseError is a token of the text form that is no op.
type ParseError struct {
	Index  int // position of the token, counted from 0
	Token  string
	Reason string
}

func (e *ParseError) Error() string { return fmt.Sprintf("op %d: %q %s", e.Index, e.Token, e.Reason) }

// RuleError is an op that breaks a rule of the semantics, whatever the memory.
type RuleError struct {
	Index  int // position in the sequence, counted from 0; its length when something is missing at the end
	Op     Op  // the zero Op at the end
	Reason string
}

func (e *RuleError) Error() string {
	if e.Op == (Op{}) {
		return "end of the sequence: " + e.Reason
	}
	return fmt.Sprintf("op %d (%s %d): %s", e.Index, e.Op.Kind, e.Op.Layer, e.Reason)
}

// MemoryError is an op that does not fit: it can never start.
type MemoryError struct {
	Index  int   // position of the op, counted from 0; -1 when a_0 itself does not fit
	Op     Op    // the zero Op for a_0
	InUse  int64 // bytes in memory that nothing will free before the op
	Needed int64 // InUse and what the op takes when it starts
	Limit  int64
}

func (e *MemoryError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("the input of the chain, %s, is over the limit of %s", units.Precise(e.Needed), units.Precise(e.Limit))
	}
	return fmt.Sprintf("op %d (%s %d) can never start: it needs %s with %s in use, %s together, and the limit is %s",
		e.Index, e.Op.Kind, e.Op.Layer, units.Bytes(e.Needed-e.InUse), units.Bytes(e.InUse), units.Precise(e.Needed), units.Precise(e.Limit))
}

// HostMemoryError is a sequence whose copies do not fit in host memory.
type HostMemoryError struct {
	Needed, Limit int64 // bytes of copies at once
}

func (e *HostMemoryError) Error() string {
	return fmt.Sprintf("the copies of what is offloaded take %s of host memory, and the limit is %s", units.Precise(e.Needed), units.Precise(e.Limit))
}
