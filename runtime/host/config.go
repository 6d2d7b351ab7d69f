package host

import (
	"context"
	"fmt"
	"math"

	"plimsoll/internal/ram"
	"plimsoll/runtime"
)

// Config says what a device is to be. The zero value is the whole CPU, unthrottled.
type Config struct {
	// Name is how errors and traces call the device; "cpu" when empty.
	Name string
	// Memory and HostMemory limit the arena and the host space, in bytes. Both are the machine's RAM: 0 means half of what is
	// available when New is called (of the split, when it is Split), and a quarter.
	Memory     int64
	HostMemory int64
	// Bandwidth limits copies between arena and host, in bytes a second. Each direction has this much, and all
	// copies in one direction share it. 0: as fast as memory is.
	Bandwidth float64
	// PeerBandwidth is likewise for the way to each peer.
	PeerBandwidth float64
	// Queue is the number of commands that a stream holds before issuing blocks; 0: 1024.
	Queue int
	// Chaos, when not 0, seeds random delays before and after the commands of all streams. They change the order in
	// which streams run, and with it every result that lacks an event.
	Chaos uint64
	// OwnCore gives the stream called "compute" a core that no other thread of the process uses, for measurements. The stream then looks for
	// what it waits for, and does not sleep. It is for Linux, and for a process with two cores or more and this device alone. Two processes
	// that ask for it take the same core.
	OwnCore bool
	// FakeClock says that the clock is that of a bubble of testing/synctest, where only time.Sleep takes time, and exactly what it is told. So
	// pauses and throttled copies take exactly their times, and anything else takes none. Launches of Pause must come alone, not within
	// others. For tests.
	FakeClock bool
	// Until, when not nil, abandons the device when it ends.
	Until context.Context
	// Fault, when not nil, is asked before each "reserve", "copy" and "copy to peer", from many goroutines; the
	// error that it returns is taken for the operation's own. For tests.
	Fault func(op string) error
}

const defaultQueue = 1024

// complete checks the values and replaces the zeros that stand for a default.
func (c Config) complete() (Config, error) {
	if c.Name == "" {
		c.Name = "cpu"
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s: %w", c.Name, err)
	}
	if c.Queue == 0 {
		c.Queue = defaultQueue
	}
	if c.Memory > 0 && c.HostMemory > 0 {
		return c, nil
	}
	half, err := ram.HalfOfAvailable()
	if err != nil {
		return c, fmt.Errorf("%s: %w", c.Name, err)
	}
	if c.Memory == 0 {
		c.Memory = half
	}
	if c.HostMemory == 0 {
		c.HostMemory = half / 2
	}
	return c, nil
}

func (c Config) check() error {
	switch {
	case c.Memory < 0:
		return fmt.Errorf("memory is %d bytes", c.Memory)
	case c.HostMemory < 0:
		return fmt.Errorf("host memory is %d bytes", c.HostMemory)
	case c.Queue < 0:
		return fmt.Errorf("queue has %d places", c.Queue)
	case !isBandwidth(c.Bandwidth):
		return fmt.Errorf("bandwidth is %v bytes/s: want a positive number, or 0 for no limit", c.Bandwidth)
	case !isBandwidth(c.PeerBandwidth):
		return fmt.Errorf("peer bandwidth is %v bytes/s: want a positive number, or 0 for no limit", c.PeerBandwidth)
	}
	return nil
}

func isBandwidth(b float64) bool { return b >= 0 && !math.IsInf(b, 1) }

func (c *Config) fault(op string) error {
	if c.Fault == nil {
		return nil
	}
	return c.Fault(op)
}

// Split returns n virtual devices that share the CPU and, in equal parts, c's memory: name*n/0 to name*n/(n-1). Each
// has its own arena, host space, streams and links.
func Split(c Config, n int) ([]*Device, error) {
	whole, err := c.complete()
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("split of %s into %d devices: want at least 1", whole.Name, n)
	}
	if whole.Memory < int64(n) || whole.HostMemory < int64(n) {
		return nil, &runtime.OutOfMemoryError{Device: whole.Name, Asked: int64(n), Limit: min(whole.Memory, whole.HostMemory)}
	}
	devices := make([]*Device, n)
	for i := range devices {
		part := whole
		part.Name = fmt.Sprintf("%s*%d/%d", whole.Name, n, i)
		part.Memory = whole.Memory / int64(n)
		part.HostMemory = whole.HostMemory / int64(n)
		if whole.Chaos != 0 {
			part.Chaos = whole.Chaos + uint64(i)<<32 | 1 // never 0, which would switch it off
		}
		if devices[i], err = New(part); err != nil {
			return nil, err
		}
	}
	return devices, nil
}
