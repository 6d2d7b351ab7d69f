// Package cuda is an NVIDIA GPU as a device. It has an arena from one allocation, page-locked host memory from another,
// CUDA's streams and events, copies to host and peers, and graphs captured from streams.
//
// It is built on gorgonia.org/cu and package driver, with the build tag cuda; no NVIDIA file is needed to build it or to
// start it. It runs kernels and does not know what they compute (that is kernels/cuda).
//
// Contexts are per thread in CUDA, so every method takes the thread for the time of the call and makes the device's
// context current. Virtual devices ("cuda:0*4") share the GPU's one context and have everything else for themselves.
package cuda
