//go:build !cgo || !linux

package nccl

import (
	"context"
	"fmt"

	"plimsoll/runtime/world"
)

// Library is a loaded NCCL.
type Library struct{}

// Fabric is the ways of one process.
type Fabric struct{}

// Load refuses: libraries are loaded by C, and NCCL is for Linux.
func Load() (*Library, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo or not for Linux: use --transport tcp, or build on Linux with a C compiler", ErrLibrary)
}

// Version returns nothing.
func (*Library) Version() string { return "" }

// New returns a fabric that refuses.
func New(*world.World, *Library) *Fabric { return &Fabric{} }

// Open refuses.
func (*Fabric) Open(context.Context, []world.Way, func(way int, do func() error) error) error {
	return ErrLibrary
}

// OpenSums refuses.
func (*Fabric) OpenSums(context.Context, []world.Line, func(line int, do func() error) error) error {
	return ErrLibrary
}

// Sum refuses.
func (*Fabric) Sum(int, uintptr, []world.Part, uintptr) error { return ErrLibrary }

// Send refuses.
func (*Fabric) Send(int, uintptr, int64, uintptr) error { return ErrLibrary }

// Receive refuses.
func (*Fabric) Receive(int, uintptr, int64, uintptr) error { return ErrLibrary }

// Sent returns nothing.
func (*Fabric) Sent() (messages, bytes int64) { return 0, 0 }

// Close does nothing.
func (*Fabric) Close() error { return nil }
