//go:build cuda && linux && amd64

package cudatest

// #cgo CFLAGS: -I${SRCDIR}/../include
// #include <semaphore.h>
// #include <stdlib.h>
// #include "cuda.h"
//
// static void pass(void *gate) {
//     while (sem_wait(gate) != 0) {} // a signal is no reason to go on
// }
//
// static sem_t *new_gate(void) {
//     sem_t *gate = malloc(sizeof *gate);
//     sem_init(gate, 0, 0);
//     return gate;
// }
//
// static CUresult launch_gate(CUstream stream, sem_t *gate) { return cuLaunchHostFunc(stream, pass, gate); }
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
)

// gate is a launch that lasts until somebody opens it: a function on the host.
type gate struct{ semaphore *C.sem_t }

// Gate returns a launch that lasts until open is called. It may be launched once.
func Gate(runtime.Device) (l runtime.Launch, open func()) {
	g := &gate{C.new_gate()} // never freed: the driver may still look at it
	return g, func() { C.sem_post(g.semaphore) }
}

func (g *gate) Kernel() string { return "gate" }

func (g *gate) Issue(s cu.Stream) error {
	if r := C.launch_gate(C.CUstream(unsafe.Pointer(s.C())), g.semaphore); r != 0 {
		return fmt.Errorf("cuLaunchHostFunc: CUDA error %d", int(r))
	}
	return nil
}
