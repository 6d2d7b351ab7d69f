//go:build !cgo || !unix

package mpi

import (
	"fmt"
	"os"

	"plimsoll/runtime/world"
)

// Load refuses: libraries are loaded by C.
func Load() (func(w *world.World) world.Transport, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo, which loads libraries: build it with a C compiler", ErrLibrary)
}

// Exit ends the process.
func Exit(code int) { os.Exit(code) }
