// Package devices turns what the user writes after --devices into devices.
//
//	spec   = device {"," device}
//	device = kind [":" index] ["*" parts]
//
// "cpu" is the whole CPU, "cpu*4" four virtual devices that share it, "cuda:1" the second GPU.
package devices

import (
	"errors"
	"slices"

	"plimsoll/internal/names"
	"plimsoll/runtime"
)

// Open opens what spec says, in its order. When one cannot be opened, those before it are closed again.
func Open(spec string, o Options) ([]runtime.Device, error) {
	items, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	var devices []runtime.Device
	for _, item := range items {
		more, err := openItem(item, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(devices))
		}
		devices = append(devices, more...)
	}
	return devices, nil
}

func openItem(item Item, o Options) ([]runtime.Device, error) {
	for _, b := range backends {
		if b.Name == item.Kind {
			return b.Open(item, o)
		}
	}
	return nil, names.Unknown(ErrUnknown, item.String(), known())
}

func closeAll(devices []runtime.Device) error {
	var all error
	for _, d := range devices {
		all = errors.Join(all, d.Close())
	}
	return all
}

// Register makes a backend known; call it from an init function. A name that is taken is our own bug.
func Register(b Backend) {
	if slices.Contains(known(), b.Name) {
		panic("BUG: two backends are called " + b.Name)
	}
	backends = append(backends, b)
}

// Backends returns the known backends.
func Backends() []Backend { return slices.Clone(backends) }

func known() []string {
	var all []string
	for _, b := range backends {
		all = append(all, b.Name)
	}
	return all
}
