//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devices"
)

func init() {
	devices.Register(devices.Backend{Name: "cuda", Doc: "an NVIDIA GPU", Open: openItem})
}

// openItem ignores the bandwidths and the chaos of the options: a real link is as fast as it is.
func openItem(item devices.Item, o devices.Options) ([]runtime.Device, error) {
	if n := driver.Load().Devices; item.Index < 0 && n > 0 {
		item.Index = o.Local % n
	}
	opened, err := Open(Config{Index: max(item.Index, 0), Parts: item.Parts, Memory: o.Memory, HostMemory: o.HostMemory})
	if err != nil {
		return nil, explain(item, err)
	}
	var devices []runtime.Device
	for _, d := range opened {
		devices = append(devices, d)
	}
	return devices, nil
}

// explain marks as unknown what the user cannot have here, and says what to do.
func explain(item devices.Item, err error) error {
	for _, absent := range []error{driver.ErrNoDriver, driver.ErrNoDevice, driver.ErrOldDriver} {
		if errors.Is(err, absent) {
			return fmt.Errorf("%w %q: %w (--devices cpu works without)", devices.ErrUnknown, item, err)
		}
	}
	if errors.Is(err, ErrIndex) || errors.Is(err, ErrTooOld) {
		return fmt.Errorf("%w %q: %w", devices.ErrUnknown, item, err)
	}
	return err
}
