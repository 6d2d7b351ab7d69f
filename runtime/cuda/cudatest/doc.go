// Package cudatest has what tests of the CUDA backend share: devices, a kernel, a launch that can be held up, and the
// emulated driver's own functions. No program imports it.
package cudatest
