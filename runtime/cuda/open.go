//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"

	"plimsoll/internal/ram"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
)

// Config says which GPU to open, and how.
type Config struct {
	Index int
	// Parts, when not 0, splits the GPU into so many virtual devices with equal shares of the memory.
	Parts int
	// Memory limits the arenas, all together, in bytes. 0: what is free, less a part for code and libraries.
	Memory int64
	// HostMemory limits the host spaces likewise. 0: half of the RAM that is available, or, where that is not known, what the
	// driver gives.
	HostMemory int64
}

// name is how errors and traces call a part.
func (c Config) name(part int) string {
	name := fmt.Sprintf("cuda:%d", c.Index)
	if c.Parts > 0 {
		name += fmt.Sprintf("*%d/%d", c.Parts, part)
	}
	return name
}

// Open opens a GPU: one device, or Parts of them. The driver's own words are in the error when it cannot.
func Open(c Config) ([]*Device, error) {
	if status := driver.Load(); status.Err != nil {
		return nil, status.Err
	} else if c.Index < 0 || c.Index >= status.Devices {
		return nil, fmt.Errorf("%w: there is no GPU %d: %s", ErrIndex, c.Index, numbers(status.Devices))
	}
	if c.Parts < 0 || c.Memory < 0 || c.HostMemory < 0 {
		return nil, fmt.Errorf("%s: negative: %+v", c.name(0), c)
	}
	g, err := newGPU(c.Index)
	if err == nil {
		err = g.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(0), err)
	}
	if half, err := ram.HalfOfAvailable(); err == nil && c.HostMemory == 0 {
		c.HostMemory = half
	}
	return c.split(g)
}

func numbers(n int) string {
	if n == 1 {
		return "the only one is number 0"
	}
	return fmt.Sprintf("they are numbered from 0 to %d", n-1)
}

// split opens the parts; those before one that fails are closed again.
func (c Config) split(g gpu) (devices []*Device, err error) {
	parts := max(c.Parts, 1)
	for i := range parts {
		d, err := newDevice(g, c.name(i), 0, c.HostMemory/int64(parts))
		if err == nil {
			devices = append(devices, d)
			if c.Memory == 0 {
				c.Memory, err = d.available()
			}
		}
		if err == nil && c.Memory < int64(parts) {
			err = &runtime.OutOfMemoryError{Device: d.name, Asked: int64(parts), Limit: c.Memory}
		}
		if err != nil {
			for _, d := range devices {
				err = errors.Join(err, d.Close())
			}
			return nil, err
		}
		d.limit = c.Memory / int64(parts)
	}
	return devices, nil
}

// The memory left to the code of kernels, the driver and libraries: this much, or an eighth of the free memory if that is
// less.
const leftOver = 512 << 20

// available returns the most bytes that an arena can have.
func (d *Device) available() (int64, error) {
	free, err := d.Free()
	return free - min(leftOver, free/8), err
}

// Free returns the bytes of the GPU's memory that nobody has.
func (d *Device) Free() (free int64, err error) {
	err = d.Run(func() (err error) {
		free, _, err = cu.MemInfo()
		return d.wrap("", callError("cuMemGetInfo", err))
	})
	return free, err
}
