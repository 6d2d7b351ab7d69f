//go:build cgo

package library

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/runtime"
)

// Compiled says whether the kernels of the cpu, which are C, are in the program.
const Compiled = true

// openCPU asks for a device whose memory can be read in place.
func openCPU(dev runtime.Device, o Options) (kernels.Library, error) {
	memory, ok := dev.(cpu.Memory)
	if !ok {
		return nil, fmt.Errorf("BUG: host device %s gives no access to its memory", dev.Info().Name)
	}
	return cpu.New(memory, cpu.Options{Threads: o.Threads})
}

// openHostCPU opens the kernels of the device itself, on threads of their own.
func openHostCPU(memory HostMemory, o Options) (kernels.Updater, error) {
	return cpu.New(memory, cpu.Options{Threads: max(o.Threads, 1), Apart: true})
}
