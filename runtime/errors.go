package runtime

import (
	"errors"
	"fmt"

	"plimsoll/internal/units"
)

var (
	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("device is closed")
	// ErrAbandoned is the error of work that was given up: see Abandoner.
	ErrAbandoned = errors.New("the work was given up")
	// ErrReserved is returned by a second Reserve.
	ErrReserved = errors.New("device memory is reserved already")
	// ErrNotReserved is returned by calls that need Reserve first.
	ErrNotReserved = errors.New("device memory is not reserved yet: call Reserve first")
	// ErrForeignLaunch is returned when a launch was prepared for another kind of device.
	ErrForeignLaunch = errors.New("launch was prepared for another kind of device")
	// ErrForeignEvent is returned by Wait and Since for an event of another kind of device, and by Record for an
	// event of another device.
	ErrForeignEvent = errors.New("event belongs to another device")
	// ErrForeignPeer is returned by CopyPeer to another kind of device.
	ErrForeignPeer = errors.New("peer is another kind of device")
	// ErrNotRecorded is returned by Since when one of the two events was never recorded.
	ErrNotRecorded = errors.New("event was never recorded")
	// ErrNotComplete is returned by Since when one of the two events is still pending.
	ErrNotComplete = errors.New("event is not complete yet: synchronize it first")
)

// OutOfMemoryError says that a device cannot give the memory asked for.
type OutOfMemoryError struct {
	Device string
	Space  Space
	Asked  int64
	Limit  int64
	Detail string // what is free and who holds the rest, where the device can tell and it is not the limit that refuses
}

func (e *OutOfMemoryError) Error() string {
	s := fmt.Sprintf("%s: out of memory (%v): asked for %s, the device has %s", e.Device, e.Space, units.Precise(e.Asked), units.Precise(e.Limit))
	if e.Detail != "" {
		s += "; " + e.Detail
	}
	return s
}

// SpanError says that a span cannot be used: it is out of bounds, of the wrong space, or overlaps another.
type SpanError struct {
	Device string
	Op     string // the method that refused it
	Span   Span
	Reason string
}

func (e *SpanError) Error() string {
	return fmt.Sprintf("%s: %s: %v: %s", e.Device, e.Op, e.Span, e.Reason)
}

// StreamError says that work of a stream failed. The stream has stopped; what was issued after it did not run.
// A stream that waits for an event of a stopped stream stops too; then Err is the other stream's StreamError.
type StreamError struct {
	Device string
	Stream string
	Op     string // the kernel's name, or "copy arena[0:8] to host[0:8]", "wait"
	Err    error
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("%s: stream %s: %s: %v", e.Device, e.Stream, e.Op, e.Err)
}

func (e *StreamError) Unwrap() error { return e.Err }
