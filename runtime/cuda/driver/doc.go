// Package driver reaches NVIDIA's driver without linking it. The program contains every function of the driver that it
// may call, as a jump to the real one, which Load finds in libcuda.so.1 at run time. Without a driver the program runs
// all the same: there are 0 devices, and Load says why.
//
// The jumps also serve gorgonia.org/cu, the binding that Plimsoll uses. Calls that the binding lacks (page-locked
// memory, stream capture, launching graphs) are here, with its types.
//
// Everything but this comment needs the build tag cuda, Linux on x86-64, and
//
//	CGO_CFLAGS=-I.../runtime/cuda/include CGO_LDFLAGS=-L.../runtime/cuda/lib
//
// where the first has our own cuda.h, and the second an empty libcuda.a for the linker; the Makefile sets both.
package driver
