//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"gorgonia.org/cu"

	"plimsoll/runtime"
)

// Device is a GPU or a part of one. Its invariants:
//
//  1. Memory is allocated by Reserve and freed by Close, at no other time.
//  2. Every call of the driver is made with the device's context current on the thread that makes it (Run).
//  3. The driver's objects (streams, events, modules, graphs, memory) live until Close has waited for all streams, and for
//     the copies of peers into this arena (visitors). Calls that use them hold lifetime for reading.
type Device struct {
	gpu
	name       string
	limit      int64 // bytes of the arena at most
	hostLimit  int64 // bytes of the host space at most; 0: what the driver gives
	lifetime   sync.RWMutex
	closed     atomic.Bool
	capturing  atomic.Pointer[capture]
	captureOne sync.Mutex                          // one capture at a time
	failed     atomic.Pointer[runtime.StreamError] // of host work: no stream goes on

	mu       sync.Mutex
	reserved bool
	memory   memory
	staged   int64 // bytes of page-locked memory beside it
	resources
	reached map[cu.CUContext]bool // contexts of peers, once peer access was asked for
	visits
	lost bool // streams have ended with an error of the context
}

// resources are the driver's objects, beside the memory. The device's mu guards them.
type resources struct {
	streams []*Stream
	events  []*Event
	modules map[string]*Module
	kernels []*Kernel
	graphs  []*Graph
	closers []func() error
}

// visits are the copies of peers into an arena. The device's mu guards them.
type visits struct {
	visitors map[*Stream]bool // streams of peers that have copied
	visiting int              // peers that are issuing such a copy now
	left     *sync.Cond       // one of them is done
}

var (
	_ runtime.Device  = (*Device)(nil)
	_ runtime.Grapher = (*Device)(nil)
)

func newDevice(g gpu, name string, limit, hostLimit int64) (d *Device, err error) {
	if g.context, err = contexts.enter(g.device); err != nil {
		return nil, fmt.Errorf("%s: %w", name, callError("cuDevicePrimaryCtxRetain", err))
	}
	d = &Device{
		gpu: g, name: name, limit: limit, hostLimit: hostLimit,
		resources: resources{modules: map[string]*Module{}}, reached: map[cu.CUContext]bool{}, visits: visits{visitors: map[*Stream]bool{}},
	}
	d.left = sync.NewCond(&d.mu)
	return d, nil
}

// Info describes the device.
func (d *Device) Info() runtime.Info {
	return runtime.Info{Name: d.name, Kind: "cuda", Model: d.model, Memory: d.limit, HostMemory: d.hostLimit}
}

// Run calls f with the device's context current on f's thread.
func (d *Device) Run(f func() error) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return d.wrap("", callError("cuCtxSetCurrent", err))
	}
	return f()
}

// use calls f like Run, and keeps what the driver has given alive meanwhile.
func (d *Device) use(op string, f func() error) error {
	d.lifetime.RLock()
	defer d.lifetime.RUnlock()
	if d.closed.Load() {
		return d.wrap(op, runtime.ErrClosed)
	}
	return d.Run(f)
}

// failure returns the error of host work that has failed.
func (d *Device) failure() error {
	if err := d.failed.Load(); err != nil {
		return err
	}
	return nil
}

// ready says why the device cannot be used; the caller holds d.mu.
func (d *Device) ready() error {
	switch {
	case d.closed.Load():
		return runtime.ErrClosed
	case !d.reserved:
		return runtime.ErrNotReserved
	}
	return nil
}

// make calls f for a device that is reserved, and is the one place where things are added to it.
func (d *Device) make(op string, f func() error) error {
	return d.use(op, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.ready(); err != nil {
			return d.wrap(op, err)
		}
		return d.wrap(op, f())
	})
}

// NewStream returns a stream that does not synchronize with the default stream.
func (d *Device) NewStream(name string) (runtime.Stream, error) {
	s := &Stream{device: d, name: name}
	err := d.make("new stream "+name, func() (err error) {
		s.extent = d.memory.Extent
		if s.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return callError("cuStreamCreate", err)
		}
		d.streams = append(d.streams, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// NewEvent returns an event that is not recorded.
func (d *Device) NewEvent() (runtime.Event, error) {
	e := &Event{device: d}
	err := d.make("new event", func() (err error) {
		if e.event, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return callError("cuEventCreate", err)
		}
		d.events = append(d.events, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// enter notes that a stream of a peer is about to copy into this arena, which stays until Close has waited for it.
func (d *Device) enter(s *Stream) (memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return memory{}, d.wrap("copy from peer", err)
	}
	d.visitors[s] = true
	d.visiting++
	return d.memory, nil
}

func (d *Device) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visiting--
	d.left.Broadcast()
}

// reach asks, once for every peer, that copies to it go directly. Where the machine cannot do that, the driver takes them
// through host memory: slower, and right all the same, so errors are not reported. The context is current.
func (d *Device) reach(peer *Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reached[peer.context] {
		return
	}
	d.reached[peer.context] = true
	if can, err := d.device.CanAccessPeer(peer.device); err == nil && can != 0 {
		_ = peer.context.EnablePeerAccess(0)
	}
}

// wrap puts the device's name and the operation before an error.
func (d *Device) wrap(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case op == "":
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return fmt.Errorf("%s: %s: %w", d.name, op, err)
}
