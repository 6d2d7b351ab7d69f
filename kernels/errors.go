package kernels

import (
	"errors"
	"fmt"
)

// ErrType is returned by a library for a call in an element type that it does not compute in.
var ErrType = errors.New("the kernels do not compute in this element type")

// TypeError is an ErrType of a library that says what it needs for the element type.
type TypeError struct{ Needs string } // "a rate of bfloat16 in field \"flop_per_s\" of device a.json"

func (e *TypeError) Error() string { return fmt.Sprintf("%v: it needs %s", ErrType, e.Needs) }

// Unwrap returns ErrType.
func (*TypeError) Unwrap() error { return ErrType }

// ErrNoKernel is returned by a library for an op or an update that it has no kernel of.
var ErrNoKernel = errors.New("there is no kernel of it")

// NoKernel returns an ErrNoKernel that says which folder lacks the kernel and what to do.
func NoKernel(folder string) error {
	return fmt.Errorf("%w in %s: add one as docs/adding.md says, or choose a device of another kind", ErrNoKernel, folder)
}

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
