//go:build !cuda || !linux || !amd64

package main

// gpuFigures would describe the GPUs.
func gpuFigures() gpuList {
	return gpuList{Status: "not built in"}
}
