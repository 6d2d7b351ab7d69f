package main

import (
	"fmt"
	goruntime "runtime"
	"strings"

	"plimsoll/executor"
)

// environment is where a result is from.
type environment struct {
	Device    string  `json:"device"` // its model
	Simulated bool    `json:"simulated"`
	Name      string  `json:"name"` // as in -device
	Library   string  `json:"library"`
	Memory    int64   `json:"memory_bytes"` // that an arena can have
	Bus       string  `json:"bus,omitempty"`
	Compute   string  `json:"capability,omitempty"`
	Units     int     `json:"multiprocessors,omitempty"`
	CUDA      string  `json:"cuda,omitempty"`   // that the driver offers
	Driver    string  `json:"driver,omitempty"` // NVIDIA's version of it
	Clock     int64   `json:"clock_hz,omitempty"`
	MaxClock  int64   `json:"max_clock_hz,omitempty"`
	Power     float64 `json:"power_w,omitempty"`
	Limit     float64 `json:"power_limit_w,omitempty"`
	PCIe      string  `json:"pcie,omitempty"`
	Used      int64   `json:"used_bytes,omitempty"` // by all processes, when the part began
	Go        string  `json:"go"`
	Commit    string  `json:"commit"`
}

func describe(t executor.Target, commit string) environment {
	info := t.Device.Info()
	e := environment{
		Device: info.Model, Simulated: info.Simulated, Name: info.Name, Library: t.Library.Name(), Memory: info.Memory,
		Go: goruntime.Version(), Commit: commit,
	}
	e.ask(t.Device)
	return e
}

// simulated is put before all figures that no GPU made.
const simulated = "**Simulated: the emulated driver ran this. Nothing here is a measurement.**"

// line describes the machine in a line of markdown; it is empty where no device was opened.
func (e *environment) line() string {
	if e.Device == "" {
		return ""
	}
	words := []string{e.Device, "kernels " + e.Library}
	if e.CUDA != "" {
		words = append(words, fmt.Sprintf("capability %s, %d multiprocessors", e.Compute, e.Units), "driver offers CUDA "+e.CUDA)
	}
	if e.Driver != "" {
		words = append(words, "driver "+e.Driver)
	}
	if e.MaxClock > 0 {
		words = append(words, fmt.Sprintf("at most %d MHz", e.MaxClock/1e6))
	}
	return strings.Join(words, "; ")
}
