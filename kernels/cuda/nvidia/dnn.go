//go:build cuda && linux && amd64

package nvidia

// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime/cuda"
)

// ErrUnsupported is returned for a convolution that cuDNN's algorithm does not compute.
var ErrUnsupported = errors.New("not supported by cuDNN")

// Pass is a direction of a convolution.
type Pass int

const (
	Forward        Pass = C.FORWARD
	BackwardData   Pass = C.BACKWARD_DATA
	BackwardFilter Pass = C.BACKWARD_FILTER
)

// Shape is the shape of a convolution: images n,h,w,c, weights o,kh,kw,c/groups, outputs n,oh,ow,o, channels last;
// strides, paddings on each side, dilations along h and w.
type Shape struct {
	N, H, W, C, OH, OW, O, KH, KW, SH, SW, PH, PW, DH, DW, Groups int64
	BFloat16                                                      bool // of all three, or else float32; sums are float32
	TF32                                                          bool // factors in float32 may be rounded to TF32; or else not
}

// Convolver is a cuDNN handle on one device. It may be used by many goroutines.
type Convolver struct {
	library *DNN
	handle  C.handle
	mu      sync.Mutex // a handle serves one thread at a time
	made    []*C.struct_convolution
}

// NewConvolver makes a handle on the device whose context is current.
func (d *DNN) NewConvolver() (*Convolver, error) {
	created := C.nvidia_dnn_create(d.calls)
	if r := created.result; r.status != 0 {
		return nil, d.failure(C.GoString(r.call), r.status)
	}
	return &Convolver{library: d, handle: created.made}, nil
}

// Close destroys the handle; its launches must have run. The context is current.
func (c *Convolver) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.made {
		C.nvidia_dnn_forget(c.library.calls, m)
		C.free(unsafe.Pointer(m))
	}
	c.made = nil
	if status := C.nvidia_dnn_destroy(c.library.calls, c.handle); status != 0 {
		return c.library.failure("cudnnDestroy", status)
	}
	return nil
}

// Convolution is one that cuDNN can compute.
type Convolution struct {
	Workspace int64 // bytes that it needs while it runs
	convolver *Convolver
	described *C.struct_convolution
}

// Convolution describes a convolution to cuDNN. Errors: ErrUnsupported, cuDNN's own. The context is current.
func (c *Convolver) Convolution(s Shape, p Pass) (*Convolution, error) {
	m := (*C.struct_convolution)(C.calloc(1, C.sizeof_struct_convolution))
	*m = C.struct_convolution{
		n: C.int(s.N), h: C.int(s.H), w: C.int(s.W), c: C.int(s.C), oh: C.int(s.OH), ow: C.int(s.OW), o: C.int(s.O),
		kh: C.int(s.KH), kw: C.int(s.KW), sh: C.int(s.SH), sw: C.int(s.SW), ph: C.int(s.PH), pw: C.int(s.PW),
		dh: C.int(s.DH), dw: C.int(s.DW), groups: C.int(s.Groups), pass: C.int(p), library: c.handle,
	}
	m.bfloat16, m.tf32 = flag(s.BFloat16), flag(s.TF32)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := C.nvidia_dnn_describe(c.library.calls, m); r.status != 0 {
		C.nvidia_dnn_forget(c.library.calls, m)
		C.free(unsafe.Pointer(m))
		if r.status/1000 == C.DNN_NOT_SUPPORTED/1000 {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, c.library.failure(C.GoString(r.call), r.status))
		}
		return nil, c.library.failure(C.GoString(r.call), r.status)
	}
	c.made = append(c.made, m)
	return &Convolution{Workspace: int64(m.workspace), convolver: c, described: m}, nil
}

// Operands are device addresses: x and y are the images and outputs, or their gradients, w the weights or theirs. The pass
// says which of the three is written. Workspace has Bytes bytes.
type Operands struct {
	X, W, Y, Workspace cu.DevicePtr
	Bytes              int64
	Add                bool // to what the result holds
}

// Launch is a convolution or product bound to memory, for streams of runtime/cuda.
type Launch struct {
	name string
	run  func(stream unsafe.Pointer) error
}

var _ cuda.Launch = (*Launch)(nil)

// Kernel returns the name.
func (l *Launch) Kernel() string { return l.name }

// Issue calls the library on s; the context is current.
func (l *Launch) Issue(s cu.Stream) error { return l.run(unsafe.Pointer(s.C())) }

// Launch binds the convolution to memory.
func (c *Convolution) Launch(o Operands) *Launch {
	v, calls := c.convolver, c.convolver.library.calls
	return &Launch{name: "cudnn", run: func(stream unsafe.Pointer) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		r := C.nvidia_dnn_run(calls, c.described, C.address(o.X), C.address(o.W), C.address(o.Y), C.address(o.Workspace),
			C.size_t(o.Bytes), flag(o.Add), stream)
		if r.status != 0 {
			return v.library.failure(C.GoString(r.call), r.status)
		}
		return nil
	}}
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
