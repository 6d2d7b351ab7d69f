// Package library finds the kernel library for a device.
package library

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// Options are those of all libraries; each takes what concerns it. The zero value is every library's default.
type Options struct {
	Threads int // workers of the CPU library; 0: all cores
	// Vendor says whether vendors' GPU libraries are used: one of Vendors; "": prefer.
	Vendor     string
	VendorPath string // folders with vendors' libraries, as in PATH; "": as the library's documentation says
	// Choices are those of another process, by kernels.Chooser: the library repeats them, and makes only the others itself.
	Choices json.RawMessage
	// Note, when not nil, is told in one line what a library does not use and why.
	Note func(string)
	// Reference asks for kernels/ref in place of the device's own library: every element type, in plain Go, slow. Only
	// for devices whose memory can be read in place.
	Reference bool
}

// Vendors are what Options.Vendor can be.
var Vendors = []string{"refuse", "prefer", "require"}

// Backend makes the library of one kind of device.
type Backend struct {
	Kind string // of runtime.Info
	Open func(runtime.Device, Options) (kernels.Library, error)
}

// ErrNone is returned for a device that no library computes on.
var ErrNone = errors.New("no kernels for this device")

var backends = []Backend{{Kind: "host", Open: openCPU}}

// Register makes a backend known; call it from an init function. A kind that is taken is our own bug.
func Register(b Backend) {
	if slices.Contains(kinds(), b.Kind) {
		panic("BUG: two kernel libraries are for " + b.Kind)
	}
	backends = append(backends, b)
}

// Open returns the kernels that compute on a device. Errors: ErrNone, those of the library.
func Open(dev runtime.Device, o Options) (kernels.Library, error) {
	info := dev.Info()
	if o.Vendor != "" && !slices.Contains(Vendors, o.Vendor) {
		return nil, fmt.Errorf("vendors' libraries: %q is unknown: give one of %s", o.Vendor, strings.Join(Vendors, ", "))
	}
	if o.Reference {
		memory, ok := dev.(ref.Memory)
		if !ok {
			return nil, fmt.Errorf("%w: the reference kernels work on memory that can be read in place, and %s has none; use cpu", ErrNone, info.Name)
		}
		return ref.New(memory), nil
	}
	for _, b := range backends {
		if b.Kind == info.Kind {
			return b.Open(dev, o)
		}
	}
	return nil, fmt.Errorf("%w: %s is a device of kind %s, and there are kernels for %s; use cpu",
		ErrNone, info.Name, info.Kind, strings.Join(kinds(), ", "))
}

func kinds() []string {
	var all []string
	for _, b := range backends {
		all = append(all, b.Kind)
	}
	return all
}
