//go:build cuda && linux && amd64

package main

import (
	"fmt"

	_ "plimsoll/kernels/cuda" // the kernels of CUDA devices
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/cuda/monitor"
)

// used returns the bytes in use of the GPU at a place on the bus, by everybody; 0 where NVML does not say.
func used(bus string) int64 {
	report, err := monitor.Read()
	if err != nil {
		return 0
	}
	if g := report.Of(bus); g != nil {
		return g.Used
	}
	return 0
}

// count returns how many GPUs the driver has; 0 without one.
func count() int { return driver.Load().Devices }

// ask adds what the driver and NVML know about a GPU.
func (e *environment) ask(dev runtime.Device) {
	d, ok := dev.(*cuda.Device)
	if !ok {
		return
	}
	major, minor := d.Capability()
	e.Bus, e.Units, e.CUDA = d.Bus(), d.Multiprocessors(), driver.Load().VersionText()
	e.Compute = fmt.Sprintf("%d.%d", major, minor)
	e.Simulated = driver.Symbol("plimsollEmulatorCount") != nil
	report, err := monitor.Read()
	if err != nil { // no NVML is no error
		return
	}
	e.Driver = report.Driver
	if g := report.Of(e.Bus); g != nil {
		e.Clock, e.MaxClock, e.Power, e.Limit, e.PCIe, e.Used = g.Clock, g.MaxClock, g.Power, g.PowerLimit, g.PCIe, g.Used
	}
}
