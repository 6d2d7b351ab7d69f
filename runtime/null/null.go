// Package null is the smallest device: it has costs and nothing else. Launches state their seconds, copies take bytes
// over bandwidth, and streams and events are points of simulated time, so a step of hours is replayed in microseconds.
// Nothing computes and no memory exists. Read it as the specification of package runtime.
package null

import (
	"fmt"
	"math"
	"sync"

	"plimsoll/runtime"
)

// Cost is a launch that takes Seconds of simulated time.
type Cost struct {
	Name    string
	Seconds float64
}

// Kernel returns the name.
func (c Cost) Kernel() string { return c.Name }

// Config says what a device costs. Bandwidths are in bytes/s, each way; with 0, copies take no time.
type Config struct {
	Name          string // "null" when empty
	Memory        int64  // bytes of the arena at most; 0 means no limit
	Bandwidth     float64
	PeerBandwidth float64
}

// Device runs work as it is issued, in simulated time. Each link serves its copies in the order of issue.
type Device struct {
	config Config
	state  error // why it cannot be used, nil when it can
	extent runtime.Extent
	free   map[any]float64 // seconds at which each link is free; keys: the space that it leads to, or the peer
}

// New returns a device that costs what c says.
func New(c Config) (*Device, error) {
	if c.Name == "" {
		c.Name = "null"
	}
	if c.Memory == 0 {
		c.Memory = math.MaxInt64
	}
	if c.Memory < 0 || !isCost(c.Bandwidth) || !isCost(c.PeerBandwidth) {
		return nil, fmt.Errorf("%s: negative or infinite memory or bandwidth: %+v", c.Name, c)
	}
	return &Device{config: c, state: runtime.ErrNotReserved, free: map[any]float64{}}, nil
}

func isCost(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

// Info says that the device is simulated.
func (d *Device) Info() runtime.Info {
	return runtime.Info{Name: d.config.Name, Kind: "null", Model: "null device (simulated time, computes nothing)",
		Memory: d.config.Memory, Bandwidth: d.config.Bandwidth, Simulated: true}
}

// Reserve notes the sizes, against which spans are checked. The host space has no limit.
func (d *Device) Reserve(arena, host int64) error {
	defer lock()()
	switch {
	case d.state == nil:
		return d.wrap("reserve", runtime.ErrReserved)
	case d.state == runtime.ErrClosed:
		return d.wrap("reserve", runtime.ErrClosed)
	case arena < 0 || host < 0:
		return d.wrap("reserve", fmt.Errorf("arena of %d bytes, host space of %d", arena, host))
	case arena > d.config.Memory:
		return &runtime.OutOfMemoryError{Device: d.config.Name, Asked: arena, Limit: d.config.Memory}
	}
	d.extent, d.state = runtime.Extent{Device: d.config.Name, Arena: arena, Host: host}, nil
	return nil
}

// HostBytes returns scratch memory of the right length: nothing written to it is kept.
func (d *Device) HostBytes(s runtime.Span) ([]byte, error) {
	defer lock()()
	if d.state != nil {
		return nil, d.wrap("host bytes", d.state)
	}
	if err := d.extent.CheckHost("host bytes", s); err != nil {
		return nil, err
	}
	return make([]byte, s.Bytes), nil
}

// Close ends the device.
func (d *Device) Close() error {
	defer lock()()
	if d.state == runtime.ErrClosed {
		return d.wrap("close", d.state)
	}
	d.state = runtime.ErrClosed
	return nil
}

func (d *Device) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", d.config.Name, op, err)
}

// world guards simulated time: devices wait for each other's events, so there is one time for all of them.
var world sync.Mutex

func lock() (unlock func()) {
	world.Lock()
	return world.Unlock
}
