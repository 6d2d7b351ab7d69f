package kernels

import (
	"errors"
	"fmt"
)

// ErrType is returned by a library for a call in an element type that it does not compute in.
var ErrType = errors.New("the kernels do not compute in this element type")

// TypeError is an ErrType of a library that says what it needs for the element type.
type TypeError struct{ Needs string } // "AVX512-BF16, which this CPU does not have"

func (e *TypeError) Error() string { return fmt.Sprintf("%v: it needs %s", ErrType, e.Needs) }

// Unwrap returns ErrType.
func (*TypeError) Unwrap() error { return ErrType }

// OpError says that an op cannot be applied: a bad attribute or inputs that do not fit.
type OpError struct {
	Kind   string // the op
	Field  string // attribute or input
	Reason string
}

func (e *OpError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Kind, e.Field, e.Reason) }

func bad(kind, field, format string, args ...any) error {
	return &OpError{Kind: kind, Field: field, Reason: fmt.Sprintf(format, args...)}
}
