//go:build cuda && linux && amd64

package nvidia

// #include "calls.h"
import "C"

import (
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// Product is C = op(A) op(B), m x n with k inner indices, all row by row.
type Product struct {
	M, N, K                int64
	A, B, C                int64 // elements from a row to the next as it is stored; 0: rows follow one another without gaps
	TransposeA, TransposeB bool  // A is stored k x m, B n x k
	BFloat16               bool  // A and B; sums are float32
	TF32                   bool  // the library may round A and B to TF32; or else it may not
	BFloat16Out            bool  // C
}

// Multiplier is a cuBLAS handle on one device. It may be used by many goroutines.
type Multiplier struct {
	library *BLAS
	handle  C.handle
	mu      sync.Mutex // a handle serves one thread at a time
}

// NewMultiplier makes a handle on the device whose context is current.
func (b *BLAS) NewMultiplier() (*Multiplier, error) {
	created := C.nvidia_blas_create(b.calls)
	if r := created.result; r.status != 0 {
		return nil, b.failure(C.GoString(r.call), r.status)
	}
	return &Multiplier{library: b, handle: created.made}, nil
}

// Close destroys the handle; its launches must have run. The context is current.
func (m *Multiplier) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if status := C.nvidia_blas_destroy(m.library.calls, m.handle); status != 0 {
		return m.library.failure("cublasDestroy", status)
	}
	return nil
}

// product turns rows into cuBLAS's columns: C's transpose is op(B)' op(A)'.
func (p Product) product() C.struct_product {
	c := C.struct_product{compute: C.BLAS_COMPUTE_32F, m: C.int(p.N), n: C.int(p.M), k: C.int(p.K), lda: C.int(p.N), ldb: C.int(p.K), ldc: C.int(p.N)}
	if p.TransposeB {
		c.ta, c.lda = C.BLAS_T, C.int(p.K)
	}
	if p.TransposeA {
		c.tb, c.ldb = C.BLAS_T, C.int(p.M)
	}
	for ld, stride := range map[*C.int]int64{&c.lda: p.B, &c.ldb: p.A, &c.ldc: p.C} {
		if stride != 0 {
			*ld = C.int(stride)
		}
	}
	if p.BFloat16 {
		c.in = C.BLAS_R_16BF
	}
	if p.TF32 {
		c.compute = C.BLAS_COMPUTE_32F_FAST_TF32
	}
	if p.BFloat16Out {
		c.out = C.BLAS_R_16BF
	}
	return c
}

// Launch binds a product to memory: A at a, B at b, C at c. With add, it is added to what C holds. The result depends on
// the bytes of the workspace, which must be those of one launch at a time.
func (m *Multiplier) Launch(p Product, a, b, c, workspace cu.DevicePtr, bytes int64, add bool) *Launch {
	columns := p.product()
	return &Launch{name: "cublas", run: func(stream unsafe.Pointer) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		r := C.nvidia_blas_run(m.library.calls, m.handle, &columns, C.address(b), C.address(a), C.address(c), C.address(workspace),
			C.size_t(bytes), flag(add), stream)
		if r.status != 0 {
			return m.library.failure(C.GoString(r.call), r.status)
		}
		return nil
	}}
}
