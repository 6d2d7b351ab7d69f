// Package emulator tests the emulated GPU: a libcuda.so.1, built by build.sh, that runs our kernels on the host.
//
// It is test equipment and no part of the program: nothing but tests imports it or loads what build.sh builds. README.md
// says what the emulated driver checks and what it does not model. With the build tag cuda the package opens such a
// library and calls its functions by name.
package emulator
