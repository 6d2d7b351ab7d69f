//go:build cuda && linux && amd64

package main

import (
	"fmt"

	_ "plimsoll/kernels/cuda" // the kernels of CUDA devices
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/cuda/monitor"
)

// withCUDA says whether CUDA devices are built in.
const withCUDA = true

// gpuFigures describes the GPUs, or says why there are none. Without NVML the fields that only it knows are left out.
func gpuFigures() gpuList {
	status := driver.Load()
	if status.Err != nil {
		return gpuList{Status: status.Err.Error()}
	}
	list := gpuList{Status: "driver offers CUDA " + status.VersionText()}
	if status.Missing > 0 {
		list.Status += fmt.Sprintf(" (without %d of the functions that Plimsoll knows)", status.Missing)
	}
	report, err := monitor.Read()
	if err != nil {
		report = &monitor.Report{}
		list.Status += "; no figures of clocks, power and links: " + err.Error()
	} else {
		list.Driver = report.Driver
	}
	for i := range status.Devices {
		list.GPUs = append(list.GPUs, describeGPU(i, report))
	}
	return list
}

// describeGPU opens one GPU for a moment.
func describeGPU(index int, report *monitor.Report) gpuFigure {
	g := gpuFigure{Name: fmt.Sprintf("cuda:%d", index)}
	opened, err := cuda.Open(cuda.Config{Index: index})
	if err != nil {
		g.Problem = oneLine(err)
		return g
	}
	d := opened[0]
	info := d.Info()
	major, minor := d.Capability()
	g.Model, g.ArenaBytes, g.MemoryBytes, g.Bus = info.Model, info.Memory, d.Total(), d.Bus()
	g.Capability, g.Multiprocessors = fmt.Sprintf("%d.%d", major, minor), d.Multiprocessors()
	if err := d.Close(); err != nil {
		g.Problem = oneLine(err)
	}
	if m := report.Of(g.Bus); m != nil {
		g.UsedBytes, g.PCIe = m.Used, m.PCIe
		g.ClockHz, g.MaxClockHz, g.MemoryClockHz = m.Clock, m.MaxClock, m.MemoryClock
		g.PowerW, g.PowerLimitW = m.Power, m.PowerLimit
		for _, l := range m.Links {
			g.NVLinks = append(g.NVLinks, nvlinkFigure{To: l.To, Links: l.Count})
		}
	}
	return g
}
