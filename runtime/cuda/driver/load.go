//go:build cuda && linux && amd64

package driver

// #cgo CFLAGS: -I${SRCDIR}/../include -std=c11
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "load.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// Library is the file that Load looks for, where the loader looks for libraries.
const Library = "libcuda.so.1"

// LibraryVariable is the environment variable that names another file.
const LibraryVariable = "PLIMSOLL_LIBCUDA"

// OldestVersion is the oldest interface of the driver that is enough: CUDA 12.0, the first that takes our kernels (PTX 8.0).
const OldestVersion = 12000

var (
	// ErrNoDriver is Status.Err when there is no libcuda.so.1, or one that cannot be loaded.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrNoDevice is Status.Err when there is a driver, but no device that it can use.
	ErrNoDevice = errors.New("the NVIDIA driver finds no GPU")
	// ErrOldDriver is Status.Err when the driver is older than OldestVersion.
	ErrOldDriver = errors.New("the NVIDIA driver is too old")
)

// Status is the result of Load.
type Status struct {
	Library string // the file asked for
	Version int    // of the driver's interface, 12040 for CUDA 12.4; 0 without a driver
	Devices int    // 0 when Err is not nil
	Missing int    // functions that the driver lacks; calling one fails with CUDA_ERROR_NOT_FOUND
	Err     error  // why there are no devices, in one line that says what to do
}

// Load loads the driver and initializes it, at the first call. Before that every call fails with
// CUDA_ERROR_NOT_INITIALIZED. It is a variable of the process: later calls return the same.
var Load = sync.OnceValue(load)

func load() Status {
	s := Status{Library: Library}
	if named := os.Getenv(LibraryVariable); named != "" {
		s.Library = named
	}
	path := C.CString(s.Library)
	defer C.free(unsafe.Pointer(path))
	var found C.struct_plimsoll_cuda_status
	C.plimsoll_cuda_load(path, &found)
	s.Version, s.Missing = int(found.version), int(found.missing)
	s.Devices, s.Err = s.judge(&found)
	return s
}

func (s *Status) judge(found *C.struct_plimsoll_cuda_status) (int, error) {
	message := C.GoString(&found.message[0])
	init := Result(found.init)
	switch {
	case found.loaded == 0:
		return 0, fmt.Errorf("%w: %s; install it, or name the file in %s", ErrNoDriver, message, LibraryVariable)
	case init == 0 && s.Version < OldestVersion:
		return 0, fmt.Errorf("%w: it offers CUDA %s, %s is the oldest that works: update it", ErrOldDriver,
			versionText(s.Version), versionText(OldestVersion))
	case init != 0:
		return 0, fmt.Errorf("%w: cuInit: %w; nvidia-smi may tell more", ErrNoDevice, init)
	}
	n, err := deviceCount()
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: cuDeviceGetCount: %w", ErrNoDevice, err)
	case n == 0:
		return 0, fmt.Errorf("%w: is one plugged in, and does CUDA_VISIBLE_DEVICES hide it?", ErrNoDevice)
	}
	return n, nil
}

// VersionText writes the version as people do: "12.4".
func (s Status) VersionText() string { return versionText(s.Version) }

func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Symbol returns the address of a symbol that the loaded library has beyond cuda.h, or nil: how tests reach the emulated
// driver's own functions.
func Symbol(name string) unsafe.Pointer {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.plimsoll_cuda_symbol(c)
}
