// Package library finds the kernel library for a device.
package library

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// Backend makes the library of one kind of device.
type Backend struct {
	Kind string // of runtime.Info
	Open func(runtime.Device, Options) (kernels.Library, error)
	// OpenHost makes what updates host memory with the bits of the library that Open makes; nil: nothing does.
	OpenHost func(HostMemory, Options) (kernels.Updater, error)
}

// ErrNone is returned for a device that no library computes on.
var ErrNone = errors.New("no kernels for this device")

var backends = []Backend{{Kind: "host", Open: openCPU, OpenHost: openHostCPU}}

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

// Bytes returns the bytes of a span of the host space: see runtime.Device.HostBytes.
func (m HostMemory) Bytes(s runtime.Span) ([]byte, error) { return m.device.HostBytes(s) }

// OpenHost returns an updater of weights and states in the host space of a device. Weights and states get the bits of the updates
// of the library that Open returns. The launches have a method Run() error, which computes on the caller's thread and on threads that
// no library of Open uses: o.Threads together. Where that is 0 it is 1 beside a CPU's own kernels, which have all cores, and half of the
// cores beside a GPU. Errors: ErrNone, those of the library.
func OpenHost(dev runtime.Device, o Options) (kernels.Updater, error) {
	info, memory := dev.Info(), HostMemory{dev}
	if o.Reference {
		return ref.New(memory), nil
	}
	for _, b := range backends {
		if b.Kind == info.Kind && b.OpenHost != nil {
			return b.OpenHost(memory, o)
		}
	}
	return nil, fmt.Errorf("%w: nothing updates the host memory of %s, a device of kind %s", ErrNone, info.Name, info.Kind)
}

func kinds() []string {
	var all []string
	for _, b := range backends {
		all = append(all, b.Kind)
	}
	return all
}
