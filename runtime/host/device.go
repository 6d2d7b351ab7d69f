// Package host is the CPU as a device. Its arena is ordinary memory, its streams run on threads of their own, and
// its copies in memory can be slowed down to a stated bandwidth. So a plan pays here for everything that it pays
// for on a real accelerator.
//
// The package runs launches and does not know what they compute (that is kernels/cpu).
package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/klauspost/cpuid/v2"

	"plimsoll/internal/units"
	"plimsoll/runtime"
)

// Device is a CPU device. Its invariants:
//
//  1. Memory is mapped by Reserve and unmapped by Close, at no other time.
//  2. A command that was queued runs, or is skipped because its stream has stopped; none is lost, so whoever waits
//     for it goes on.
//  3. The arena stays mapped while a command that reads or writes it is queued, also one of a peer (guests).
type Device struct {
	config   Config
	toDevice *link
	toHost   *link

	abandoned atomic.Bool
	forget    func() bool // that Config.Until abandons it

	mu      sync.Mutex
	state   state
	memory  memory
	streams []*Stream
	peers   map[*Device]*link
	guests  int        // peers' copies into this arena that were queued and have not ended
	left    *sync.Cond // a guest has left
}

type state uint8

const (
	fresh state = iota
	reserved
	closed
)

var (
	_ runtime.Device    = (*Device)(nil)
	_ runtime.Abandoner = (*Device)(nil)
)

// New returns a device, without memory until Reserve.
func New(c Config) (*Device, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	d := &Device{
		config:   c,
		toDevice: newLink(c.Bandwidth),
		toHost:   newLink(c.Bandwidth),
		peers:    map[*Device]*link{},
	}
	d.left = sync.NewCond(&d.mu)
	if c.Until != nil {
		d.forget = context.AfterFunc(c.Until, d.Abandon)
	}
	open.Add(1)
	return d, nil
}

// open counts the devices of this process.
var open atomic.Int32

// alone reports whether this process has no other device, so that nobody else computes.
func alone() bool { return open.Load() == 1 }

// Abandon implements runtime.Abandoner. A launch that runs is waited for.
func (d *Device) Abandon() { d.abandoned.Store(true) }

// Info describes the device.
func (d *Device) Info() runtime.Info {
	model := cpuid.CPU.BrandName
	if model == "" {
		model = "CPU"
	}
	return runtime.Info{
		Name: d.config.Name, Kind: "host", Model: model,
		Memory: d.config.Memory, HostMemory: d.config.HostMemory, Bandwidth: d.config.Bandwidth,
	}
}

// Reserve maps the arena and the host space. Pages that are never touched cost nothing.
func (d *Device) Reserve(arena, host int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case reserved:
		return d.wrap("reserve", runtime.ErrReserved)
	case closed:
		return d.wrap("reserve", runtime.ErrClosed)
	}
	if err := d.admit(runtime.Arena, arena, d.config.Memory); err != nil {
		return err
	}
	if err := d.admit(runtime.Host, host, d.config.HostMemory); err != nil {
		return err
	}
	m, err := d.mapMemory(arena, host)
	if err != nil {
		return d.wrap("reserve", err)
	}
	d.memory, d.state = m, reserved
	return nil
}

func (d *Device) admit(space runtime.Space, asked, limit int64) error {
	if asked < 0 {
		return d.wrap("reserve", fmt.Errorf("%v of %s", space, units.Bytes(asked)))
	}
	if asked > limit {
		return &runtime.OutOfMemoryError{Device: d.config.Name, Space: space, Asked: asked, Limit: limit}
	}
	return nil
}

func (d *Device) mapMemory(arena, host int64) (memory, error) {
	if err := d.config.fault("reserve"); err != nil {
		return memory{}, err
	}
	return newMemory(d.config.Name, arena, host)
}

// NewStream starts a stream. Names need not differ, but errors and traces show them.
func (d *Device) NewStream(name string) (runtime.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, d.wrap("new stream "+name, err)
	}
	s := newStream(d, name, len(d.streams))
	d.streams = append(d.streams, s)
	return s, nil
}

// NewEvent returns an event that is not recorded.
func (d *Device) NewEvent() (runtime.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, d.wrap("new event", err)
	}
	return &Event{device: d}, nil
}

// HostBytes returns the bytes of a span of the host space.
func (d *Device) HostBytes(s runtime.Span) ([]byte, error) {
	return d.bytes("host bytes", s, runtime.Extent.CheckHost)
}

// Bytes returns the bytes of a span of either space, for the kernels. They are gone after Close.
func (d *Device) Bytes(s runtime.Span) ([]byte, error) {
	return d.bytes("bytes", s, runtime.Extent.Check)
}

func (d *Device) bytes(op string, s runtime.Span, check func(runtime.Extent, string, runtime.Span) error) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, d.wrap(op, err)
	}
	if err := check(d.memory.Extent, op, s); err != nil {
		return nil, err
	}
	return d.memory.bytes(s), nil
}

// Close waits for all streams, and for peers' copies into this arena, and unmaps the memory. Errors of the streams
// are Synchronize's to report. A launch that never ends keeps Close waiting; Dump says which.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.state == closed {
		d.mu.Unlock()
		return d.wrap("close", runtime.ErrClosed)
	}
	d.state = closed
	open.Add(-1)
	streams := d.streams
	d.mu.Unlock()
	if d.forget != nil {
		d.forget()
	}
	for _, s := range streams {
		s.close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.guests > 0 {
		d.left.Wait()
	}
	return d.memory.release()
}

func (d *Device) ready() error {
	switch d.state {
	case fresh:
		return runtime.ErrNotReserved
	case closed:
		return runtime.ErrClosed
	}
	return nil
}

// enter keeps the arena mapped until leave.
func (d *Device) enter() (memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return memory{}, d.wrap("copy from peer", err)
	}
	d.guests++
	return d.memory, nil
}

func (d *Device) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guests--
	d.left.Broadcast()
}

// linkTo returns the link from this device to a peer; the way back is the peer's.
func (d *Device) linkTo(peer *Device) *link {
	if peer == d {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.peers[peer]
	if !ok {
		l = newLink(d.config.PeerBandwidth)
		d.peers[peer] = l
	}
	return l
}

// linkBetween returns the link of a copy between the spaces of this device, nil within one space.
func (d *Device) linkBetween(dst, src runtime.Space) *link {
	switch dst {
	case src:
		return nil
	case runtime.Arena:
		return d.toDevice
	}
	return d.toHost
}

func (d *Device) wrap(op string, err error) error {
	return fmt.Errorf("%s: %s: %w", d.config.Name, op, err)
}

// memory is the memory that Reserve mapped. It never changes, so streams keep a copy of it.
type memory struct {
	runtime.Extent
	arena []byte
	host  []byte
}

func newMemory(device string, arena, host int64) (memory, error) {
	m := memory{Extent: runtime.Extent{Device: device, Arena: arena, Host: host}}
	var err error
	if m.arena, err = mapBytes(arena); err != nil {
		return memory{}, fmt.Errorf("arena of %s: %w", units.Bytes(arena), err)
	}
	if m.host, err = mapBytes(host); err != nil {
		return memory{}, errors.Join(fmt.Errorf("host space of %s: %w", units.Bytes(host), err), unmapBytes(m.arena))
	}
	return m, nil
}

// bytes returns a span that Check has accepted. Its capacity ends with it.
func (m memory) bytes(s runtime.Span) []byte {
	b := m.arena
	if s.Space == runtime.Host {
		b = m.host
	}
	return b[s.Offset:s.End():s.End()]
}

func (m memory) release() error {
	return errors.Join(unmapBytes(m.arena), unmapBytes(m.host))
}
