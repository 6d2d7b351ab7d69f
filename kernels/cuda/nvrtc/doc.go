// Package nvrtc compiles CUDA C with NVIDIA's run-time compiler, which it loads when it is wanted: no program links it.
package nvrtc
