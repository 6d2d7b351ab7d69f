//go:build cgo && unix

package dynlib

// #cgo linux LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// Open loads a library, or finds it loaded. Its symbols are for the caller alone. The error is the loader's text.
func Open(path string) (unsafe.Pointer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // dlerror is the thread's
	defer runtime.UnlockOSThread()
	library := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	return library, nil
}
