package world

import (
	"context"
	"fmt"
	"sync/atomic"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// HostBytes is the Transport whose messages the program moves, from and to memory that it reaches. Those of other devices are staged in
// page-locked memory. It adds up nothing.
type HostBytes struct {
	world    *World
	by       Carrier
	ends     []hostEnd // by way
	messages atomic.Int64
	bytes    atomic.Int64
}

// Carrier moves the bytes of messages between processes. Each end of a way is used by one goroutine at a time.
type Carrier struct {
	Name string // for errors
	// Open is collective.
	Open func(ctx context.Context, ways []Way) error
	// Send returns when p may be written again. The way begins at this process, and p is no longer than its messages are.
	Send func(way int, p []byte) error
	// Receive fills p, on a way that ends at this process. A message of another size is a *SizeError.
	Receive func(way int, p []byte) error
	// Close makes what waits fail.
	Close func() error
}

// hostEnd is a way, and what its end in this process has.
type hostEnd struct {
	Way
	staging runtime.Staging // nil where the program reaches the device's memory
}

// NewHostBytes returns the transport of a world whose messages are moved by a carrier.
func NewHostBytes(w *World, by Carrier) *HostBytes { return &HostBytes{world: w, by: by} }

// Open implements Transport.
func (h *HostBytes) Open(ways []Way) error { return h.open(h.world.Context(), ways) }

func (h *HostBytes) open(ctx context.Context, ways []Way) error {
	ends := make([]hostEnd, len(ways))
	for i, x := range ways {
		ends[i].Way = x
		if d, ok := x.Device.(runtime.Stager); ok {
			var err error
			if ends[i].staging, err = d.NewStaging(x.Name, x.Bytes); err != nil {
				return err
			}
		}
	}
	h.ends = nil
	err := h.by.Open(ctx, ways)
	if err == nil {
		h.ends = ends
	}
	return err
}

// Send implements Transport.
func (h *HostBytes) Send(way int, src runtime.Span) (runtime.Launch, error) {
	do := func(p []byte) error { return h.SendBytes(way, p) }
	if way < 0 || way >= len(h.ends) {
		return nil, do(nil)
	}
	if s := h.ends[way].staging; s != nil {
		return s.Send(src, h.orEnd(do))
	}
	return h.ends[way].launch("send", src, do)
}

// Receive implements Transport.
func (h *HostBytes) Receive(way int, dst runtime.Span) (runtime.Launch, error) {
	do := func(p []byte) error { return h.ReceiveBytes(way, p) }
	if way < 0 || way >= len(h.ends) {
		return nil, do(nil)
	}
	if s := h.ends[way].staging; s != nil {
		return s.Receive(dst, h.orEnd(do))
	}
	return h.ends[way].launch("receive", dst, do)
}

// orEnd ends the world when a staged message fails, before the stream goes on: so nobody takes what follows for trained.
func (h *HostBytes) orEnd(do func(p []byte) error) func(p []byte) error {
	return func(p []byte) error {
		err := do(p)
		if err != nil {
			h.world.Fail(err)
			_ = h.Close() // what waits ends
		}
		return err
	}
}

// launch returns one that hands the bytes of a span to a carrier.
func (e *hostEnd) launch(name string, span runtime.Span, do func(p []byte) error) (runtime.Launch, error) {
	memory, ok := e.Device.(interface {
		Bytes(s runtime.Span) ([]byte, error)
	})
	if !ok {
		return nil, fmt.Errorf("%w: %s is of a kind of device that has no messages to other processes", ErrTransport, e.Device.Info().Name)
	}
	p, err := memory.Bytes(span)
	if err != nil {
		return nil, err
	}
	return host.Func{Name: name, Do: func() error { return do(p) }}, nil
}

// SendBytes sends p, which may be written again when it returns.
func (h *HostBytes) SendBytes(way int, p []byte) error {
	if way < 0 || way >= len(h.ends) || h.ends[way].From != h.world.Rank() {
		return fmt.Errorf("%s: no open way %d begins at rank %d", h.by.Name, way, h.world.Rank())
	}
	if e := &h.ends[way]; int64(len(p)) > e.Bytes {
		return fmt.Errorf("%s: a message of %d bytes on way %s, of at most %d", h.by.Name, len(p), e.Name, e.Bytes)
	}
	if err := h.by.Send(way, p); err != nil {
		return err
	}
	h.messages.Add(1)
	h.bytes.Add(int64(len(p)))
	return nil
}

// ReceiveBytes fills p with the next message. One of another size is a *SizeError.
func (h *HostBytes) ReceiveBytes(way int, p []byte) error {
	if way < 0 || way >= len(h.ends) || h.ends[way].To != h.world.Rank() {
		return fmt.Errorf("%s: no open way %d ends at rank %d", h.by.Name, way, h.world.Rank())
	}
	return h.by.Receive(way, p)
}

// OpenSums refuses.
func (h *HostBytes) OpenSums([]Line) error {
	return fmt.Errorf("%w: %s adds up no gradients, NCCL does", ErrTransport, h.by.Name)
}

// Sum refuses.
func (h *HostBytes) Sum(int, []runtime.Span) (runtime.Launch, error) { return nil, h.OpenSums(nil) }

// Sent implements Transport.
func (h *HostBytes) Sent() (messages, bytes int64) { return h.messages.Load(), h.bytes.Load() }

// DeviceBytes implements Transport.
func (*HostBytes) DeviceBytes() int64 { return 0 }

// Close implements Transport.
func (h *HostBytes) Close() error { return h.by.Close() }
