package main

import (
	"context"
	"fmt"
	"io"
	goruntime "runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/internal/units"
	"plimsoll/kernels/cpu"
	"plimsoll/runtime/open"
)

// deviceFigures describes a device: bytes and bytes per second.
type deviceFigures struct {
	Name        string  `json:"name"`
	Kind        string  `json:"kind"`
	Model       string  `json:"model"`
	Cores       int     `json:"cores"`
	Library     string  `json:"library"`
	MemoryBytes int64   `json:"memory_bytes"`
	ToDevice    float64 `json:"to_device_bytes_per_s"`
	ToHost      float64 `json:"to_host_bytes_per_s"`
}

// gpuList is what is known about the GPUs. Status is how they are reached, or why there are none.
type gpuList struct {
	Status string      `json:"cuda"`
	Driver string      `json:"driver,omitempty"` // NVIDIA's version of it
	GPUs   []gpuFigure `json:"gpus,omitempty"`
}

// gpuFigure describes a GPU: bytes, Hz and W. What is not known is left out.
type gpuFigure struct {
	Name            string         `json:"name"`
	Model           string         `json:"model"`
	Problem         string         `json:"problem,omitempty"` // why it cannot be used
	Bus             string         `json:"bus"`
	Capability      string         `json:"capability"`
	Multiprocessors int            `json:"multiprocessors"`
	MemoryBytes     int64          `json:"memory_bytes"`
	ArenaBytes      int64          `json:"arena_bytes"` // at most, as things are
	UsedBytes       int64          `json:"used_bytes,omitempty"`
	PCIe            string         `json:"pcie,omitempty"`
	NVLinks         []nvlinkFigure `json:"nvlinks,omitempty"`
	ClockHz         int64          `json:"clock_hz,omitempty"`
	MaxClockHz      int64          `json:"max_clock_hz,omitempty"`
	MemoryClockHz   int64          `json:"memory_clock_hz,omitempty"`
	PowerW          float64        `json:"power_w,omitempty"`
	PowerLimitW     float64        `json:"power_limit_w,omitempty"`
}

// nvlinkFigure is a bundle of links to what is at a place on the bus.
type nvlinkFigure struct {
	To    string `json:"to"`
	Links int    `json:"links"`
}

func (a *app) devices() *cobra.Command {
	return command("devices", "Show the devices, their memory and their copy bandwidths", `Show the devices of this machine: the memory that an arena can have, the kernels' instruction set, and the measured
bandwidth of copies between the arena and host memory. For GPUs also clocks, power and links, or why there is none.`, a.runDevices)
}

func (a *app) runDevices(context.Context) error {
	list := struct {
		Devices []deviceFigures `json:"devices"`
		gpuList
	}{gpuList: gpuFigures()}
	device, err := cpuFigures()
	if err != nil {
		return err
	}
	list.Devices = append(list.Devices, *device)
	return a.print(list, func(out io.Writer) {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, d := range list.Devices {
			fmt.Fprintf(w, "%s\t%s\n", d.Name, d.Model)
			fmt.Fprintf(w, "\tcores\t%d\n", d.Cores)
			fmt.Fprintf(w, "\tkernels\t%s\n", d.Library)
			fmt.Fprintf(w, "\tarena\tup to %s\n", units.Bytes(d.MemoryBytes))
			fmt.Fprintf(w, "\tcopies\t%s to the arena, %s to the host\n", units.Rate(d.ToDevice, "B"), units.Rate(d.ToHost, "B"))
		}
		list.writeGPUs(w)
		_ = w.Flush() // of a buffer
	})
}

// writeGPUs prints them as rows of a table.
func (l *gpuList) writeGPUs(w io.Writer) {
	fmt.Fprintf(w, "cuda\t%s\n", l.Status)
	if l.Driver != "" {
		fmt.Fprintf(w, "\tdriver\t%s\n", l.Driver)
	}
	for _, g := range l.GPUs {
		fmt.Fprintf(w, "%s\t%s\n", g.Name, g.Model)
		g.write(w)
	}
}

func (g *gpuFigure) write(w io.Writer) {
	if g.Problem != "" {
		fmt.Fprintf(w, "\tproblem\t%s\n", g.Problem)
		return
	}
	fmt.Fprintf(w, "\tcapability\t%s, %d multiprocessors, at %s\n", g.Capability, g.Multiprocessors, g.Bus)
	fmt.Fprintf(w, "\tarena\tup to %s of %s\n", units.Bytes(g.ArenaBytes), units.Bytes(g.MemoryBytes))
	if g.UsedBytes > 0 {
		fmt.Fprintf(w, "\tin use\t%s\n", units.Bytes(g.UsedBytes))
	}
	if g.ClockHz > 0 {
		fmt.Fprintf(w, "\tclocks\t%s of %s, memory %s\n", hertz(g.ClockHz), hertz(g.MaxClockHz), hertz(g.MemoryClockHz))
	}
	if g.PowerW > 0 {
		fmt.Fprintf(w, "\tpower\t%.0f of %.0f W\n", g.PowerW, g.PowerLimitW)
	}
	if g.PCIe != "" {
		fmt.Fprintf(w, "\tPCIe\t%s\n", g.PCIe)
	}
	for _, l := range g.NVLinks {
		fmt.Fprintf(w, "\tNVLink\t%d links to %s\n", l.Links, l.To)
	}
}

func hertz(n int64) string { return fmt.Sprintf("%d MHz", n/1e6) }

// cpuFigures measures the CPU device.
func cpuFigures() (*deviceFigures, error) {
	devices, err := open.Devices("cpu", open.Options{})
	if err != nil {
		return nil, err
	}
	d := devices[0]
	info := d.Info()
	lib, err := cpu.New(nil, cpu.Options{})
	if err != nil {
		return nil, firstOf(err, d.Close())
	}
	toDevice, toHost, err := bench.CopyBandwidth(d)
	if err := firstOf(err, d.Close()); err != nil {
		return nil, err
	}
	return &deviceFigures{
		Name: info.Name, Kind: info.Kind, Model: info.Model, Cores: goruntime.GOMAXPROCS(0), Library: lib.Name(),
		MemoryBytes: info.Memory, ToDevice: toDevice, ToHost: toHost,
	}, nil
}
