//go:build cuda && linux && amd64

package driver

// #include <stdlib.h>
// #include "cuda.h"
//
// static CUresult load_module(CUmodule *module, const void *image, char *log, size_t bytes) {
//     CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
//     void *values[] = {log, (void *)bytes};
//     return cuModuleLoadDataEx(module, image, 2, options, values);
// }
import "C"

import (
	"strings"
	"unsafe"

	"gorgonia.org/cu"
)

func deviceCount() (int, error) {
	var n C.int
	err := result(C.cuDeviceGetCount(&n))
	return int(n), err
}

// Attributes that gorgonia.org/cu has no name for.
const (
	SharedMemoryOptIn cu.DeviceAttribute = C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN // bytes per block
	WaitExternal      uint               = C.CU_EVENT_WAIT_EXTERNAL
	WaitAtLeast       uint               = C.CU_STREAM_WAIT_VALUE_GEQ
)

// PCIBusID returns the device's place on the bus, "0000:41:00.0", by which NVML knows it too.
func PCIBusID(d cu.Device) (string, error) {
	var text [32]C.char
	if err := result(C.cuDeviceGetPCIBusId(&text[0], C.int(len(text)), C.CUdevice(d))); err != nil {
		return "", err
	}
	return C.GoString(&text[0]), nil
}

// AllocHost allocates page-locked host memory that the copy engines of all devices reach. Its content is undefined.
func AllocHost(bytes int64) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := result(C.cuMemHostAlloc(&p, C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE))
	return p, err
}

// LoadModule loads PTX, a cubin or a fat binary into the current context. log is what the compiler of PTX says about an
// error, in one line.
func LoadModule(image []byte) (m cu.Module, log string, err error) {
	text := C.CBytes(append(image[:len(image):len(image)], 0)) // PTX ends with a zero byte
	defer C.free(text)
	const room = 4096
	buffer := (*C.char)(C.calloc(1, room))
	defer C.free(unsafe.Pointer(buffer))
	err = result(C.load_module((*C.CUmodule)(unsafe.Pointer(&m)), text, buffer, room))
	return m, strings.Join(strings.Fields(C.GoString(buffer)), " "), err
}

// SetDynamicShared allows a function so many bytes of dynamic shared memory per block; more than 48 KiB need it.
func SetDynamicShared(f cu.Function, bytes int) error {
	return result(C.cuFuncSetAttribute(function(f), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// LaunchKernel launches f. arguments points to C memory with one pointer for each parameter of f. Allocates nothing.
func LaunchKernel(f cu.Function, grid, block [3]uint32, shared uint32, s cu.Stream, arguments unsafe.Pointer) error {
	return result(C.cuLaunchKernel(function(f),
		C.uint(grid[0]), C.uint(grid[1]), C.uint(grid[2]), C.uint(block[0]), C.uint(block[1]), C.uint(block[2]),
		C.uint(shared), stream(s), (*unsafe.Pointer)(arguments), nil))
}

// RecordExternal records an event from inside a capture: at every launch of the graph the event is recorded, with its
// time, as if it had been recorded outside.
func RecordExternal(e cu.Event, s cu.Stream) error {
	return result(C.cuEventRecordWithFlags(*(*C.CUevent)(unsafe.Pointer(&e)), stream(s), C.CU_EVENT_RECORD_EXTERNAL))
}

// BeginCapture makes s note what is issued to it instead of running it, and every stream that comes to wait for it. The
// mode is relaxed: nothing of what other threads do disturbs the capture, and any thread may end it.
func BeginCapture(s cu.Stream) error {
	return result(C.cuStreamBeginCapture(stream(s), C.CU_STREAM_CAPTURE_MODE_RELAXED))
}

// Graph is the work that a capture has recorded.
type Graph struct{ graph C.CUgraph }

// EndCapture ends the capture that BeginCapture began on s. The graph is empty when there is an error.
func EndCapture(s cu.Stream) (Graph, error) {
	var g Graph
	err := result(C.cuStreamEndCapture(stream(s), &g.graph))
	return g, err
}

// Nodes returns how many kernels, copies, waits and records the graph has.
func (g Graph) Nodes() (int, error) {
	var n C.size_t
	err := result(C.cuGraphGetNodes(g.graph, nil, &n))
	return int(n), err
}

// Instantiate prepares the graph for launches.
func (g Graph) Instantiate() (Exec, error) {
	var x Exec
	err := result(C.cuGraphInstantiate(&x.exec, g.graph, 0))
	return x, err
}

// Destroy forgets the graph; what was instantiated from it stays. Of the zero Graph it does nothing.
func (g Graph) Destroy() error {
	if g.graph == nil {
		return nil
	}
	return result(C.cuGraphDestroy(g.graph))
}

// Exec is a graph that can be launched.
type Exec struct{ exec C.CUgraphExec }

// Upload sends the graph to the device, so that its first launch is as fast as the others.
func (x Exec) Upload(s cu.Stream) error { return result(C.cuGraphUpload(x.exec, stream(s))) }

// Launch runs the graph on s. Allocates nothing.
func (x Exec) Launch(s cu.Stream) error { return result(C.cuGraphLaunch(x.exec, stream(s))) }

// Destroy ends the graph once its launches have.
func (x Exec) Destroy() error { return result(C.cuGraphExecDestroy(x.exec)) }

func stream(s cu.Stream) C.CUstream { return C.CUstream(unsafe.Pointer(s.C())) }

// function takes the handle out of its wrapper, which exports no other way to it: a struct with the one field.
func function(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

// NewArguments returns C memory for LaunchKernel: one pointer, and behind it what it points to, a copy of the one
// parameter of a kernel.
func NewArguments(parameter unsafe.Pointer, bytes uintptr) unsafe.Pointer {
	const head = 16 // keeps the copy aligned as malloc does
	p := C.malloc(C.size_t(head + bytes))
	value := unsafe.Add(p, head)
	*(*unsafe.Pointer)(p) = value
	copy(unsafe.Slice((*byte)(value), bytes), unsafe.Slice((*byte)(parameter), bytes))
	return p
}

// FreeArguments frees what NewArguments returned.
func FreeArguments(p unsafe.Pointer) { C.free(p) }
