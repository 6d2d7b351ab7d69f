package host

import (
	"fmt"
	"sync"
	"time"

	"plimsoll/runtime"
)

// point is a place in a stream: behind its command n. The zero point is always reached.
type point struct {
	stream *Stream
	n      uint64
}

// await waits until the stream has reached the point, and returns when that was due; the error is the one that stopped it before.
func (p point) await() (due time.Duration, err error) {
	if p.stream == nil {
		return longAgo, nil
	}
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	err = p.stream.await(p.n)
	return p.stream.dueAt(p.n), err
}

func (p point) String() string {
	if p.stream == nil {
		return "an event never recorded"
	}
	return fmt.Sprintf("command %d of %s, stream %s", p.n, p.stream.device.config.Name, p.stream.name)
}

// Event is the point of its latest Record. A wait copies the point when it is issued, so recording the event again
// does not disturb waits that are pending.
type Event struct {
	device *Device

	mu    sync.Mutex
	point point
	ended bool
	at    time.Duration // when it ended
	err   error         // why it failed
}

var _ runtime.Event = (*Event)(nil)

// Synchronize waits for the latest Record.
func (e *Event) Synchronize() error {
	if err := e.open(); err != nil {
		return err
	}
	_, err := e.latest().await()
	return err
}

// Since returns the time between two completed events, by the machine's monotonic clock.
func (e *Event) Since(earlier runtime.Event) (time.Duration, error) {
	other, ok := earlier.(*Event)
	if !ok || other == nil {
		return 0, e.device.wrap("event: since", runtime.ErrForeignEvent)
	}
	if err := e.open(); err != nil {
		return 0, err
	}
	to, err := e.time()
	if err != nil {
		return 0, err
	}
	from, err := other.time()
	return to - from, err
}

func (e *Event) open() error {
	e.device.mu.Lock()
	defer e.device.mu.Unlock()
	if e.device.state == closed {
		return e.device.wrap("event", runtime.ErrClosed)
	}
	return nil
}

func (e *Event) time() (time.Duration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.point.stream == nil:
		return 0, e.device.wrap("event", runtime.ErrNotRecorded)
	case !e.ended:
		return 0, e.device.wrap("event", runtime.ErrNotComplete)
	}
	return e.at, e.err
}

func (e *Event) latest() point {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.point
}

func (e *Event) mark(p point) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.point, e.ended, e.err = p, false, nil
}

// complete notes that the stream has reached p, unless the event stands for another point by now.
func (e *Event) complete(p point, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.point == p {
		e.ended, e.at, e.err = true, now(), err
	}
}
