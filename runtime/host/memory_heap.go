//go:build !unix || race

package host

import "unsafe"

// mapBytes returns zeroed memory on a page boundary, from the Go heap. It is used where there is no mmap, and in
// builds with -race, because the race detector sees accesses to the heap only. So it finds events that a program
// lacks.
func mapBytes(n int64) ([]byte, error) {
	const page = 4096
	b := make([]byte, n+page)
	skip := -int64(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	return b[skip : skip+n : skip+n], nil
}

func unmapBytes([]byte) error { return nil }
