// Package estimate computes the costs of a model on a device that is not here, from a description of the device and the model's graph.
//
// A device file (plimsoll.device/v1) holds rates, sizes and efficiencies. Every time of an estimate is a roofline: an op takes as long as its
// floating-point operations or its bytes, whichever take longer, and then a launch. Nothing is measured and nothing runs, and no weight
// is allocated. An estimated chain says so (chain.Chain.Estimated).
package estimate

import (
	"slices"

	"plimsoll/kernels"
)

// Format is the value of the "format" field of a device file.
const Format = "plimsoll.device/v1"

// Device describes a device and the host beside it. Rates are those of the maker's data sheet, and efficiencies the shares of them that
// kernels and copies reach. Bandwidths are bytes per second, times seconds.
//
// Invariants (checked by UnmarshalJSON): every rate, size and share is finite and above 0, and a share is at most 1. A launch takes no negative
// time. Types and ops are known ones. The rows name an efficiency of everything (Efficiency of no op, pass and type).
type Device struct {
	Name      string
	Rates     map[string]float64 // floating-point operations per second, by element type
	Memory    int64              // bytes that an arena can have
	Bandwidth float64            // of its memory
	ToDevice  float64            // of the link from host memory
	ToHost    float64            // of the link to host memory
	Duplex    bool               // the link copies both ways at once, each at its bandwidth
	HostBytes int64              // host memory that plans may take
	HostRate  float64            // bandwidth of host memory
	Launch    float64            // seconds from one kernel to the next
	Workspace int64              // bytes of scratch of a call with matrix products
	Rows      []Efficiency
	Sources   map[string]string // where each figure is from, by its field
}

// Efficiency is the share of the device's rates that an op reaches. An op, a pass or a type that is "" stands for all.
type Efficiency struct {
	Op, Pass, DType    string
	Arithmetic, Memory float64
	Launch             float64 // seconds of each call beside the device's launch
}

// Names of efficiencies that are no ops of kernels or kinds of optimizers.
const (
	copies     = "copy"        // over the link
	hostUpdate = "host_update" // of weights in host memory
)

// matches reports whether a row is about an op, a pass and a type.
func (e *Efficiency) matches(op, pass, dtype string) bool {
	return (e.Op == "" || e.Op == op) && (e.Pass == "" || e.Pass == pass) && (e.DType == "" || e.DType == dtype)
}

// of returns the efficiency of an op: the first row that is about it.
func (d *Device) of(op, pass, dtype string) *Efficiency {
	return &d.Rows[slices.IndexFunc(d.Rows, func(e Efficiency) bool { return e.matches(op, pass, dtype) })]
}

// seconds returns the roofline of operations and bytes.
func (d *Device) seconds(e *Efficiency, dtype kernels.DType, operations, bytes int64) float64 {
	took := float64(bytes) / (d.Bandwidth * e.Memory)
	if operations > 0 {
		took = max(took, float64(operations)/(d.Rates[dtype.String()]*e.Arithmetic))
	}
	return took + d.Launch + e.Launch
}

// Link returns the bandwidths that copies reach from and to host memory.
func (d *Device) Link() (toDevice, toHost float64) {
	share := d.of(copies, "", "").Memory
	return d.ToDevice * share, d.ToHost * share
}
