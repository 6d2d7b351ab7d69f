package main

import (
	"math"

	"plimsoll/internal/units"
)

// deviceFigures describes a device: bytes and bytes per second.
type deviceFigures struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Model       string `json:"model"`
	Cores       int    `json:"cores,omitempty"`   // of the CPU
	Library     string `json:"library,omitempty"` // likewise
	MemoryBytes int64  `json:"memory_bytes"`
	ToDevice    rate   `json:"to_device_bytes_per_s"`
	ToHost      rate   `json:"to_host_bytes_per_s"`
}

// gpuList holds the known data of the GPUs. Status is how they are reached, or why there are none.
type gpuList struct {
	Status string      `json:"cuda"`
	Driver string      `json:"driver,omitempty"` // NVIDIA's version of it
	GPUs   []gpuFigure `json:"gpus,omitempty"`
}

// gpuFigure describes a GPU: bytes, Hz and W. Unknown fields are left out.
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

// devicesCommand is plimsoll devices.
type devicesCommand struct {
	*app
	spec          string
	bandwidth     units.Bandwidth
	peerBandwidth units.Bandwidth
	memory        units.Size
	memoryGiven   bool
	out           string
	pairs         bool
	world         worldFlags
}

// peerFigure is the link between two devices or, where one is split, between any two parts of it.
type peerFigure struct {
	Between [2]string `json:"between"` // as the user wrote them: "cpu*4"
	Rate    rate      `json:"bytes_per_s"`
}

// rate is bytes per second, +Inf where copies take no time: null in JSON.
type rate float64

func (r rate) String() string {
	if math.IsInf(float64(r), 1) {
		return "in no time"
	}
	return units.Rate(float64(r), "B")
}
