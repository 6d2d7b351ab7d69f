// Package monitor asks NVML, NVIDIA's management library, what a GPU is doing: memory and who holds it, clocks, power,
// links. The library is loaded at run time; without it there is nothing to tell, which is no error.
package monitor
