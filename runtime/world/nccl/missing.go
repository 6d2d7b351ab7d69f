//go:build !cgo || !linux

package nccl

import (
	"fmt"

	"plimsoll/runtime/world"
)

// Load refuses: libraries are loaded by C, and NCCL is for Linux.
func Load() (func(w *world.World) world.Transport, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo or not for Linux: build it on Linux with a C compiler", ErrLibrary)
}
