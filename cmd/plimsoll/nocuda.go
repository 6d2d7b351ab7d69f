//go:build !cuda || !linux || !amd64

package main

// withCUDA says whether CUDA devices are built in.
const withCUDA = false

// gpuFigures would describe the GPUs.
func gpuFigures() gpuList {
	return gpuList{Status: "not built in"}
}
