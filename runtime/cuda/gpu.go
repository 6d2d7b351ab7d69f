//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"plimsoll/runtime/cuda/driver"
)

// gpu is the state that all parts of one GPU share.
type gpu struct {
	device       cu.Device
	context      cu.CUContext // the primary one, which every library in the process uses too
	model        string
	bus          string // "0000:41:00.0"
	major, minor int
	processors   int
	shared       int // bytes per block
	total        int64
}

// oldestCapability is the oldest that the kernels are compiled for.
const oldestCapability = 75

// Capability returns the GPU's compute capability, 9 and 0 for an H100.
func (g *gpu) Capability() (major, minor int) { return g.major, g.minor }

// Multiprocessors returns how many the GPU has.
func (g *gpu) Multiprocessors() int { return g.processors }

// SharedMemory returns the most that one block can have, in bytes.
func (g *gpu) SharedMemory() int { return g.shared }

// Bus returns the GPU's place on the PCI bus, "0000:41:00.0".
func (g *gpu) Bus() string { return g.bus }

// Total returns the bytes of memory that the GPU is built with.
func (g *gpu) Total() int64 { return g.total }

func newGPU(index int) (g gpu, err error) {
	if g.device, err = cu.GetDevice(index); err != nil {
		return g, callError("cuDeviceGet", err)
	}
	if g.model, err = g.device.Name(); err != nil {
		return g, callError("cuDeviceGetName", err)
	}
	if g.bus, err = driver.PCIBusID(g.device); err != nil {
		return g, callError("cuDeviceGetPCIBusId", err)
	}
	if g.total, err = g.device.TotalMem(); err != nil {
		return g, callError("cuDeviceTotalMem", err)
	}
	for _, a := range []struct {
		to   *int
		what cu.DeviceAttribute
	}{
		{&g.major, cu.ComputeCapabilityMajor}, {&g.minor, cu.ComputeCapabilityMinor},
		{&g.processors, cu.MultiprocessorCount}, {&g.shared, driver.SharedMemoryOptIn},
	} {
		if *a.to, err = g.device.Attribute(a.what); err != nil {
			return g, callError("cuDeviceGetAttribute", err)
		}
	}
	return g, nil
}

func (g *gpu) check() error {
	if c := 10*g.major + g.minor; c < oldestCapability {
		return fmt.Errorf("%w: %s has compute capability %d.%d, %d.%d is the oldest that works (Turing, 2018)", ErrTooOld,
			g.model, g.major, g.minor, oldestCapability/10, oldestCapability%10)
	}
	return nil
}
