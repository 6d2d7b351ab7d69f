//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"sync"
	"time"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
)

// Event is an event of the driver with what the driver does not know: whether it was ever recorded, and whether the
// stream had stopped by then.
type Event struct {
	device *Device
	event  cu.Event

	mu       sync.Mutex
	recorded bool
	err      error    // why the stream had stopped
	graph    *Graph   // whose launch was the latest Record, nil when it was a stream's
	capture  *capture // the capture that its latest Record is a part of
	inner    cu.Event // its place in that capture; made by the first one
}

var _ runtime.Event = (*Event)(nil)

// Synchronize waits for the latest Record.
func (e *Event) Synchronize() error {
	return e.device.use("event", func() error {
		at, recorded, err := e.state()
		if err != nil || !recorded {
			return err
		}
		if err := at.Synchronize(); err != nil {
			return e.device.wrap("event", callError("cuEventSynchronize", err))
		}
		return e.device.failure()
	})
}

// Since returns the time between two complete events as the GPU measures it, to about half a microsecond. They must be
// of one GPU.
func (e *Event) Since(earlier runtime.Event) (time.Duration, error) {
	other, ok := earlier.(*Event)
	if !ok || other == nil {
		return 0, e.device.wrap("event: since", runtime.ErrForeignEvent)
	}
	if !other.hold() {
		return 0, other.device.wrap("event", runtime.ErrClosed)
	}
	defer other.release()
	var milliseconds float64
	err := e.device.use("event", func() (err error) {
		for _, x := range []*Event{e, other} {
			if err := x.complete(); err != nil {
				return e.device.wrap("event: since", err)
			}
		}
		milliseconds, err = other.event.Elapsed(e.event)
		return e.device.wrap("event: since", callError("cuEventElapsedTime", err))
	})
	return time.Duration(milliseconds * float64(time.Millisecond)), err
}

// hold keeps the event of another device alive until release. It does not wait for a device that is about to close: two
// of those could wait for each other.
func (e *Event) hold() bool {
	if !e.device.lifetime.TryRLock() {
		return false
	}
	if e.device.closed.Load() {
		e.device.lifetime.RUnlock()
		return false
	}
	return true
}

func (e *Event) release() { e.device.lifetime.RUnlock() }

// state returns the driver's event to wait for, whether there is anything to wait for, and why the stream had stopped.
// A graph's record counts when the graph has ended: the manual does not say that a wait issued right behind a graph's
// launch is for the record in it.
func (e *Event) state() (at cu.Event, recorded bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.capture != nil && e.device.capturing.Load() == e.capture:
		return at, false, e.device.wrap("event", ErrCapturing)
	case e.recorded && e.err == nil && e.device.failure() != nil:
		return at, true, e.device.failure()
	case e.graph != nil:
		return e.graph.after, e.recorded, e.err
	}
	return e.event, e.recorded, e.err
}

// complete returns why the event's time cannot be asked for.
func (e *Event) complete() error {
	at, recorded, err := e.state()
	switch {
	case err != nil:
		return err
	case !recorded:
		return runtime.ErrNotRecorded
	}
	if err := at.Query(); isResult(err, driver.NotReady) {
		return runtime.ErrNotComplete
	} else if err != nil {
		return callError("cuEventQuery", err)
	}
	return nil
}

// mark notes a Record, by a stream or by the launch of a graph; err is why the stream had stopped.
func (e *Event) mark(err error, g *Graph) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded, e.err, e.graph, e.capture = true, err, g, nil
}

// within returns the event's place in a capture, when its latest Record is a part of it.
func (e *Event) within(c *capture) (inner cu.Event, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inner, e.capture == c
}

// markWithin notes a Record in a capture and returns the event's place in it.
func (e *Event) markWithin(c *capture) (cu.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inner == (cu.Event{}) {
		var err error
		if e.inner, err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return cu.Event{}, callError("cuEventCreate", err)
		}
	}
	e.capture = c
	return e.inner, nil
}

func (e *Event) destroy() error {
	err := cu.DestroyEvent(&e.event)
	if e.inner != (cu.Event{}) {
		err = errors.Join(err, cu.DestroyEvent(&e.inner))
	}
	return err
}
