package cpu

// #include "job.h"
import "C"

import (
	"unsafe"

	"plimsoll/kernels"
)

// builder turns a call into jobs. Without operands it only counts the workspace.
type builder struct {
	lib     *Library
	call    kernels.Call
	half    bool // activations are bfloat16
	address map[kernels.Operand]C.uint64_t
	jobs    []C.struct_job
	used    int64 // bytes of workspace
	err     error // of an op or update without a kernel
}

func (l *Library) newBuilder(uses []access) *builder {
	b := &builder{lib: l, address: map[kernels.Operand]C.uint64_t{}}
	for _, u := range uses {
		b.address[u.operand] = C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(u.bytes))))
	}
	return b
}

// at returns the address of an operand, 0 when the call does not use it.
func (b *builder) at(r kernels.Role, index int) C.uint64_t {
	return b.address[kernels.Operand{Role: r, Index: index}]
}

// reserve takes bytes of the workspace.
func (b *builder) reserve(bytes int64) C.uint64_t {
	at := b.used
	b.used += kernels.Align(bytes)
	if base := b.at(kernels.Workspace, 0); base != 0 {
		return base + C.uint64_t(at)
	}
	return 0
}

// scratch is workspace that every worker has for itself.
type scratch struct {
	base  C.uint64_t
	bytes int64
}

func (b *builder) reserveScratch(bytes int64) scratch {
	bytes = kernels.Align(bytes)
	return scratch{b.reserve(bytes * int64(b.lib.pool.threads)), bytes}
}

// addJob appends a phase with its arguments.
func addJob[T any](b *builder, kernel, tasks int64, s scratch, args T) {
	path := C.int32_t(b.lib.path)
	switch {
	case b.half && b.lib.dot:
		path = C.HALVES
	case b.half:
		path += C.HALF_PLAIN
	}
	b.jobs = append(b.jobs, C.struct_job{
		tasks: C.int64_t(tasks), path: path, kernel: C.int32_t(kernel),
		scratch: s.base, scratch_bytes: C.int64_t(s.bytes),
	})
	*(*T)(unsafe.Pointer(&b.jobs[len(b.jobs)-1].args)) = args
}

// grain is the elements of a task of the kernels that stream through memory.
const grain = 16384

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// rowsPerTask returns how many rows of so many elements make a task.
func rowsPerTask(width int64) int64 { return max(grain/width, 1) }

func flag(b bool) C.int64_t {
	if b {
		return 1
	}
	return 0
}

// decimal is the number that the user wrote.
func decimal(f float32) C.double { return C.double(kernels.Decimal(f)) }
