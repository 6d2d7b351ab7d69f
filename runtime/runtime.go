// Package runtime says what a Device is: one memory arena with a hard limit, streams, events and copies.
//
// The semantics are CUDA's. A stream is an ordered queue that runs asynchronously to the caller and to other streams. Events are the
// only way in which one stream waits for another. The package knows no kernels: a Launch is prepared by a kernel library for
// one kind of device. Packages null (costs only), host (the CPU) and cuda implement it; devicetest is the suite that every device passes.
package runtime

import (
	"fmt"
	"time"
)

// Space says which memory a span lies in.
type Space uint8

const (
	// Arena is the device's own memory, allocated once by Reserve.
	Arena Space = iota
	// Host is the device's page-locked host memory, allocated once by Reserve.
	Host
)

func (s Space) String() string {
	switch s {
	case Arena:
		return "arena"
	case Host:
		return "host"
	}
	return fmt.Sprintf("space(%d)", uint8(s))
}

// Span is a range of bytes in one space of a device. It is a value: no memory belongs to it.
type Span struct {
	Space  Space
	Offset int64
	Bytes  int64
}

// End returns the offset behind the span.
func (s Span) End() int64 { return s.Offset + s.Bytes }

// Part returns bytes [offset, offset+bytes) of the span.
func (s Span) Part(offset, bytes int64) Span {
	return Span{Space: s.Space, Offset: s.Offset + offset, Bytes: bytes}
}

// Overlaps reports whether the two spans share a byte of the same space of one device.
func (s Span) Overlaps(t Span) bool {
	return s.Space == t.Space && s.Bytes > 0 && t.Bytes > 0 && s.Offset < t.End() && t.Offset < s.End()
}

func (s Span) String() string {
	return fmt.Sprintf("%v[%d:%d]", s.Space, s.Offset, s.End())
}

// Info describes a device.
type Info struct {
	Name   string // as the user writes it: "cpu", "cpu*4/2" (the third of four), "cuda:0"
	Kind   string // "host", "null", "cuda"
	Model  string // "Intel Xeon ...", "NVIDIA H200"
	Memory int64  // bytes that Reserve can give at most
	// HostMemory is the bytes of the host space that Reserve can give at most; 0: not known.
	HostMemory int64
	Bandwidth  float64 // stated bandwidth of the host link, bytes/s each way; 0 when it is not throttled
	Simulated  bool    // true when launches do not really compute
}

// Launch is one prepared piece of work for a stream. It holds its operands; launching it again repeats it.
// A device accepts only launches that were prepared for its kind.
type Launch interface {
	// Kernel names the work in traces and errors.
	Kernel() string
}

// Device is one memory arena, its streams and its link to host memory. Its methods may be called at the same time
// from many goroutines, those of its streams and events too.
type Device interface {
	Info() Info
	// Reserve allocates the arena and the host space, once, before anything else. Exceeding Info().Memory is an
	// *OutOfMemoryError. Contents are zero. A Reserve that fails leaves nothing behind and may be repeated.
	Reserve(arena, host int64) error
	NewStream(name string) (Stream, error)
	NewEvent() (Event, error)
	// HostBytes returns the bytes of a span of the Host space, for the caller to read or write while no copy
	// that touches them is in flight. They are gone after Close.
	HostBytes(s Span) ([]byte, error)
	// Close waits for all streams, and for copies of peers into this arena, and releases everything.
	Close() error
}

// Abandoner is a device that can give up.
type Abandoner interface {
	// Abandon makes queued work that has not ended fail with ErrAbandoned, including a copy that waits for its link. It does
	// not wait. Later calls fail as well, except Close.
	Abandon()
}

// Stream is an ordered queue of work on one device. Its methods return before the work has run; they may block
// while the queue is full. An error of the work itself stops the stream, and Synchronize and later calls report it
// as a *StreamError. Work behind the error does not run; events recorded behind it complete as failed, and streams
// that wait for those stop too. In steady state no method allocates Go memory.
//
// A Wait is for a Record that was issued before it, so streams cannot wait for each other in a circle.
type Stream interface {
	Name() string
	Launch(l Launch) error
	// Copy copies src to dst between the spaces of this device. They have the same length and do not overlap.
	Copy(dst, src Span) error
	// CopyPeer copies src of this device's arena to dst in the arena of peer, a device of the same kind.
	CopyPeer(peer Device, dst, src Span) error
	// Record makes ev, an event of this device, stand for everything issued to this stream so far.
	Record(ev Event) error
	// Wait makes later work of this stream wait for ev's latest Record at the time of the call; an event never
	// recorded is complete. The event may belong to another device of the same kind.
	Wait(ev Event) error
	// Synchronize blocks the caller until everything issued has run.
	Synchronize() error
}

// Event marks a point of a stream.
type Event interface {
	// Synchronize blocks the caller until the latest Record is complete; it returns the error of a stream that
	// stopped before it. An event never recorded is complete.
	Synchronize() error
	// Since returns the time from earlier's completion to this event's, negative when this one was first. Both
	// must be recorded and complete: ErrNotRecorded, ErrNotComplete.
	Since(earlier Event) (time.Duration, error)
}
