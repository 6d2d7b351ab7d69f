//go:build cuda

package emulator

// #include <stdlib.h>
import "C"

import "unsafe"

// Scratch is zeroed C memory: what a driver function reads or writes through an address.
type Scratch struct {
	base  unsafe.Pointer
	bytes int
}

// NewScratch allocates it. The caller frees it.
func NewScratch(bytes int) *Scratch { return &Scratch{C.calloc(1, C.size_t(bytes)), bytes} }

// Free releases it.
func (s *Scratch) Free() { C.free(s.base) }

// Address returns where it lies.
func (s *Scratch) Address() uint64 { return uint64(uintptr(s.base)) }

// Bytes returns its content.
func (s *Scratch) Bytes() []byte { return unsafe.Slice((*byte)(s.base), s.bytes) }

// Elements returns the content as elements of T.
func Elements[T any](s *Scratch) []T {
	var t T
	return unsafe.Slice((*T)(s.base), s.bytes/int(unsafe.Sizeof(t)))
}
