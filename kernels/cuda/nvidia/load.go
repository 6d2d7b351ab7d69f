//go:build cuda && linux && amd64

package nvidia

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"plimsoll/internal/dynlib"
)

// Mode says whether vendors' libraries are used.
type Mode string

const (
	Refuse  Mode = "refuse"  // never loaded
	Prefer  Mode = "prefer"  // those that are found; which are missing is recorded
	Require Mode = "require" // one that is missing is an error
)

// Libraries are the libraries that were found; either may be nil. A library stays loaded while the program runs.
type Libraries struct {
	DNN           *DNN
	BLAS          *BLAS
	NoDNN, NoBLAS error // why one is not used
}

// Missing lists why libraries are not used.
func (l *Libraries) Missing() (all []error) {
	for _, err := range []error{l.NoBLAS, l.NoDNN} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// DNN is a loaded cuDNN.
type DNN struct {
	Path    string
	Version string // "9.10.2"
	calls   *C.struct_dnn
}

// BLAS is a loaded cuBLAS.
type BLAS struct {
	Path    string
	Version string // "12.6.4"
	calls   *C.struct_blas
}

// Load looks for both. cuBLAS comes first, because cuDNN uses it.
func Load(mode Mode, s Search) (*Libraries, error) {
	all := &Libraries{}
	if mode == Refuse {
		return all, nil
	}
	all.BLAS, all.NoBLAS = LoadBLAS(s)
	all.DNN, all.NoDNN = LoadDNN(s)
	if mode == Require {
		return all, errors.Join(all.Missing()...)
	}
	return all, nil
}

// LoadDNN loads cuDNN 9.
func LoadDNN(s Search) (*DNN, error) {
	d := &DNN{calls: (*C.struct_dnn)(C.calloc(1, C.sizeof_struct_dnn))}
	err := s.load([]string{"libcudnn.so.9"}, "cuDNN 9", "nvidia-cudnn-cu12", func(library unsafe.Pointer, path string) error {
		if missing := C.nvidia_load_dnn(d.calls, library); missing != nil {
			return lacks(path, missing, "cuDNN 9")
		}
		v := int(C.nvidia_dnn_version(d.calls))
		d.Path, d.Version = fileOf(library, "cudnnGetVersion", path), fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
		if v < 10000 { // as versions before 9 were counted
			d.Version = fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
		}
		return wrongVersion(d.Path, "cuDNN", d.Version, v/10000, 9, 9)
	})
	if err != nil {
		C.free(unsafe.Pointer(d.calls))
		return nil, err
	}
	return d, nil
}

// LoadBLAS loads cuBLAS 12 or 13.
func LoadBLAS(s Search) (*BLAS, error) {
	b := &BLAS{calls: (*C.struct_blas)(C.calloc(1, C.sizeof_struct_blas))}
	err := s.load([]string{"libcublas.so.12", "libcublas.so.13"}, "cuBLAS 12", "nvidia-cublas-cu12", func(library unsafe.Pointer, path string) error {
		if missing := C.nvidia_load_blas(b.calls, library); missing != nil {
			return lacks(path, missing, "cuBLAS 12")
		}
		var v [3]C.int
		for i := range v {
			if status := C.nvidia_blas_property(b.calls, C.int(i), &v[i]); status != 0 {
				return fmt.Errorf("%s: %w", path, b.failure("cublasGetProperty", status))
			}
		}
		b.Path, b.Version = fileOf(library, "cublasGetProperty", path), fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
		return wrongVersion(b.Path, "cuBLAS", b.Version, int(v[0]), 12, 13)
	})
	if err != nil {
		C.free(unsafe.Pointer(b.calls))
		return nil, err
	}
	return b, nil
}

// load gives accept every candidate that can be opened, until it takes one. One in a folder that the user names must be
// taken. When none is, the error is that of the first that was there.
func (s Search) load(names []string, product, wheel string, accept func(library unsafe.Pointer, path string) error) error {
	candidates, named, err := s.candidates(names)
	if err != nil {
		return fmt.Errorf("%s: %w", product, err)
	}
	var first error
	for i, path := range candidates {
		library, err := open(path)
		if err == nil && library == nil {
			continue
		}
		if err == nil {
			if err = s.fits(library, path); err == nil {
				err = accept(library, path)
			}
			if err == nil {
				return nil
			}
			C.dlclose(library)
		}
		if i < named {
			return err
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		return s.missing(product, names[0], wheel)
	}
	return first
}

// emulatedMark is a symbol of libraries that are made for an emulated GPU.
const emulatedMark = "plimsollEmulatedVendor"

// fits refuses a library that is not made for an emulated GPU, where there is one.
func (s Search) fits(library unsafe.Pointer, path string) error {
	name := C.CString(emulatedMark)
	defer C.free(unsafe.Pointer(name))
	if s.Emulated && C.dlsym(library, name) == nil {
		return fmt.Errorf("%s cannot use an emulated GPU: run without --debug vendor=require", path)
	}
	return nil
}

// open returns nil for a name that the loader does not find.
func open(path string) (unsafe.Pointer, error) {
	library, err := dynlib.Open(path)
	if err == nil {
		return library, nil
	}
	text := err.Error()
	if strings.HasPrefix(text, path+": cannot open shared object file: No such file") {
		return nil, nil
	}
	return nil, fmt.Errorf("%s: it cannot be loaded: install it again, or use --debug vendor=refuse", text)
}

func lacks(path string, symbol *C.char, product string) error {
	return fmt.Errorf("%s has no %s: it is no %s; install that, or use --debug vendor=refuse", path, C.GoString(symbol), product)
}

func wrongVersion(path, product, version string, major, oldest, newest int) error {
	if major >= oldest && major <= newest {
		return nil
	}
	return fmt.Errorf("%s is %s %s, and version %d is needed: install that, or use --debug vendor=refuse", path, product, version, oldest)
}

// fileOf returns the file that the loader took, or what it was asked for.
func fileOf(library unsafe.Pointer, symbol, asked string) string {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	if file := C.nvidia_file(library, name); file != nil {
		return C.GoString(file)
	}
	return asked
}

func (d *DNN) failure(call string, status C.int) error {
	return fmt.Errorf("%s: %s (%d)", call, C.GoString(C.nvidia_dnn_text(d.calls, status)), int(status))
}

func (b *BLAS) failure(call string, status C.int) error {
	return fmt.Errorf("%s: %s (%d)", call, C.GoString(C.nvidia_blas_text(b.calls, status)), int(status))
}
