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
