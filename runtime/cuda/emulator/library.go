//go:build cuda

package emulator

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef uint64_t (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	uint64_t, uint64_t);

// All parameters of the driver's functions are integers or addresses. On 64-bit Linux each takes one register or eight
// bytes of the stack, and a function does not see those that it does not have.
static uint64_t call(void *f, const uint64_t *a) {
	return ((function)f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"plimsoll/internal/dynlib"
)

// most is the number of parameters that Call passes.
const most = 11

// Library is an open driver library, the emulated one or another.
type Library struct {
	handle unsafe.Pointer
}

// Open loads the library. A second copy of the same file, under another path, is independent of the first.
func Open(path string) (*Library, error) {
	handle, err := dynlib.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &Library{handle}, nil
}

// Has reports whether the library exports the function.
func (l *Library) Has(name string) bool { return l.symbol(name) != nil }

func (l *Library) symbol(name string) unsafe.Pointer {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.dlsym(l.handle, text)
}

// Call calls the function with integers and addresses of C memory, and returns what it returns, as 64 bits.
func (l *Library) Call(name string, args ...uint64) uint64 {
	f := l.symbol(name)
	if f == nil || len(args) > most {
		panic(fmt.Sprintf("BUG: %s with %d arguments", name, len(args)))
	}
	var all [most]C.uint64_t
	for i, a := range args {
		all[i] = C.uint64_t(a)
	}
	return uint64(C.call(f, &all[0]))
}
