//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
)

// staging is page-locked memory for one message of a way, with a goroutine that hands it to the program or has the program fill it. A
// stream tells the goroutine how far it is by a function on the host, which does not wait. The stream waits for the goroutine by the
// driver's wait for a value. So nothing that the driver runs waits for a message, and no thread does.
type staging struct {
	device *Device
	name   string
	bytes  int64
	memory unsafe.Pointer  // page-locked: the message, then done
	issued uint32          // messages that were issued, by one stream at a time
	calls  chan call       // of these; those that wait for the stream are in it
	turns  *driver.Counter // messages to which the stream has come
	ended  chan struct{}
}

// call is one message that was issued.
type call struct {
	message
	number uint32
	stream *Stream
	err    error // of the driver: the message has no turn
}

// message is a launch.
type message struct {
	*staging
	span   runtime.Span
	do     func(p []byte) error
	fills  bool // the program fills the staging
	device cu.DevicePtr
	host   HostLaunch // instead of do: the message has no bytes
}

const (
	// ahead bounds the messages of a way that are issued and have not come.
	ahead = 1024
	// never is more than the messages that any stream waits for behind one that has failed. Numbers are compared as distances.
	never = 1 << 30
	line  = 64 // bytes: done has a line of a cache for itself
)

var _ runtime.Stager = (*Device)(nil)

// NewStaging implements runtime.Stager. Its buffer counts as memory of the host space.
func (d *Device) NewStaging(name string, bytes int64) (runtime.Staging, error) {
	s := newStaging(d, name, bytes)
	err := d.make("new staging "+name, func() error {
		if err := d.admit(runtime.Host, d.memory.Host+d.staged+s.bytes+line, d.hostLimit); err != nil {
			return err
		}
		if err := s.open(); err != nil {
			return err
		}
		d.staged += s.bytes + line
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newStaging(d *Device, name string, bytes int64) *staging {
	return &staging{device: d, name: name, bytes: (bytes + line - 1) / line * line, calls: make(chan call, ahead), ended: make(chan struct{})}
}

// open takes the memory and starts the goroutine. The context is current and the caller holds the device's mu.
func (s *staging) open() (err error) {
	d := s.device
	if s.memory, err = driver.AllocHost(s.bytes + line); err != nil {
		return d.refused(runtime.Host, "cuMemHostAlloc", s.bytes+line, d.hostLimit, err)
	}
	atomic.StoreUint32(s.done(), 0)
	if s.turns, err = driver.NewCounter(); err != nil {
		return errors.Join(err, cu.MemFreeHost(s.memory))
	}
	d.closers = append(d.closers, s.close)
	go s.serve()
	return nil
}

// done is how many messages have left the staging, or come into it.
func (s *staging) done() *uint32 { return (*uint32)(unsafe.Add(s.memory, s.bytes)) }

// Send implements runtime.Staging.
func (s *staging) Send(src runtime.Span, send func(p []byte) error) (runtime.Launch, error) {
	return s.launch(src, send, false)
}

// Receive implements runtime.Staging.
func (s *staging) Receive(dst runtime.Span, receive func(p []byte) error) (runtime.Launch, error) {
	return s.launch(dst, receive, true)
}

func (s *staging) launch(span runtime.Span, do func(p []byte) error, fills bool) (runtime.Launch, error) {
	if span.Bytes > s.bytes {
		return nil, s.device.wrap(s.name, fmt.Errorf("a message of %d bytes in a staging of %d", span.Bytes, s.bytes))
	}
	m := &message{staging: s, span: span, do: do, fills: fills}
	if span.Bytes == 0 {
		return m, nil
	}
	var err error
	m.device, err = s.device.Address(span)
	return m, err
}

// Kernel implements runtime.Launch.
func (m *message) Kernel() string {
	if m.host != nil {
		return m.host.Kernel()
	}
	return m.name
}

// issueOn implements stopper.
func (m *message) issueOn(s *Stream) error { return m.issue(*m, s) }

// issue puts a message on a stream and tells the goroutine.
func (s *staging) issue(m message, on *Stream) error {
	s.issued++
	err := m.enqueue(on.stream, s.issued)
	s.calls <- call{m, s.issued, on, err}
	return err
}

// work implements worker.
func (s *staging) work(l HostLaunch, on *Stream) error {
	return s.issue(message{staging: s, host: l, fills: true}, on)
}

// enqueue puts a message on its stream, which waits until the staging is its own.
func (m message) enqueue(s cu.Stream, n uint32) error {
	if m.fills {
		if err := m.turn(s); err != nil {
			return err
		}
		if err := m.wait(s, n); err != nil || m.span.Bytes == 0 {
			return err
		}
		return callError("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(m.device, m.memory, m.span.Bytes, s))
	}
	if err := m.wait(s, n-1); err != nil {
		return err
	}
	if m.span.Bytes > 0 {
		if err := cu.MemcpyDtoHAsync(m.memory, m.device, m.span.Bytes, s); err != nil {
			return callError("cuMemcpyDtoHAsync", err)
		}
	}
	return m.turn(s)
}

// wait makes a stream wait until so many messages have left the staging, or come into it.
func (s *staging) wait(stream cu.Stream, n uint32) error {
	address := cu.DevicePtr(uintptr(unsafe.Pointer(s.done()))) // page-locked memory has the same address for the GPU
	return callError("cuStreamWaitValue32", stream.WaitOnValue32(address, n, driver.WaitAtLeast))
}

// turn makes a stream tell the goroutine that it has come to the next message.
func (s *staging) turn(stream cu.Stream) error {
	return callError("cuLaunchHostFunc", s.turns.Add(stream))
}

// serve handles the messages in their order. Behind one that fails none is handled, its stream stops, and no stream waits any more.
func (s *staging) serve() {
	defer close(s.ended)
	come, failed := uint32(0), false
	for c := range s.calls {
		for come < c.number && c.err == nil {
			n, err := s.turns.Wait()
			if err != nil {
				return // the device closes, and its context is lost
			}
			come += n
		}
		if failed {
			continue
		}
		if err := c.handle(); err != nil {
			c.fail(err)
			failed, c.number = true, c.number+never
		}
		atomic.StoreUint32(s.done(), c.number)
	}
}

// handle gives the message to the program. A panic becomes an error, so that it stops the stream and not the process.
func (c *call) handle() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack())
		}
	}()
	switch {
	case c.err != nil:
		return c.err
	case c.host != nil:
		return c.host.Run()
	}
	return c.do(unsafe.Slice((*byte)(c.memory), c.span.Bytes))
}

// fail stops the stream of a message that failed. Host work that has failed stops the device's other streams, too: one may wait for it
// already. Where the driver has refused the work, its stream had stopped before another one could wait.
func (c *call) fail(err error) {
	_ = c.stream.stopWith(c.Kernel(), err)
	if c.host != nil && c.err == nil {
		c.stream.device.failed.CompareAndSwap(nil, c.stream.stopped.Load())
	}
}

// close ends the goroutine behind the last message. Streams are drained, so all messages have had their turn, unless the context is
// lost; the context is current.
func (s *staging) close() error {
	close(s.calls)
	if !s.device.lost {
		<-s.ended
	}
	err := s.turns.Close()
	<-s.ended
	return errors.Join(err, callError("cuMemFreeHost", cu.MemFreeHost(s.memory)))
}

// external is work of another library.
type external struct {
	name    string
	address uintptr
	do      func(address, stream uintptr) error
}

var _ runtime.Enqueuer = (*Device)(nil)

// Enqueue implements runtime.Enqueuer.
func (d *Device) Enqueue(name string, s runtime.Span, do func(address, stream uintptr) error) (runtime.Launch, error) {
	x := &external{name: name, do: do}
	if s.Bytes > 0 {
		at, err := d.Address(s)
		if err != nil {
			return nil, err
		}
		x.address = uintptr(at)
	}
	return x, nil
}

// Kernel implements runtime.Launch.
func (x *external) Kernel() string { return x.name }

// Issue implements Launch.
func (x *external) Issue(s cu.Stream) error {
	return x.do(x.address, uintptr(unsafe.Pointer(s.C())))
}
