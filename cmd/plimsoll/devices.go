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

func (a *app) devices() *cobra.Command {
	return command("devices", "Show the devices, their memory and their copy bandwidths", `Show the devices of this machine: the memory that an arena can have, the kernels' instruction set, and the measured
bandwidth of copies between the arena and host memory.`, a.runDevices)
}

func (a *app) runDevices(context.Context) error {
	list := struct {
		Devices []deviceFigures `json:"devices"`
		CUDA    string          `json:"cuda"`
	}{CUDA: "not built in"}
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
		fmt.Fprintf(w, "cuda\t%s: this build drives the CPU alone\n", list.CUDA)
		_ = w.Flush() // of a buffer
	})
}

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
