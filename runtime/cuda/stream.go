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

// Stream is a stream of the driver that stops at the first error, as runtime.Stream says. The driver reports most errors
// of a launch or copy when it is issued: then the stream has stopped, and what is issued later is not given to the
// driver. An error that the GPU finds while it runs takes the whole context along, so every stream of the GPU stops. An error
// of a HostLaunch stops every stream of the device.
type Stream struct {
	device *Device
	name   string
	extent runtime.Extent
	stream cu.Stream

	mu      sync.Mutex // one call at a time issues
	host    worker     // made by the first HostLaunch, guarded by mu
	stopped atomic.Pointer[runtime.StreamError]
	capture *capture // the last one that the stream was a part of; guarded by mu
}

var _ runtime.Stream = (*Stream)(nil)

// Launch is work that a stream of this device can launch. Issue gives it to the driver; the context is current. It
// allocates nothing.
type Launch interface {
	runtime.Launch
	Issue(s cu.Stream) error
}

// stopper is a launch that can stop its stream later, when work of the program fails.
type stopper interface {
	runtime.Launch
	issueOn(s *Stream) error
}

// HostLaunch is work for the CPU in the order of a stream. It begins when everything before it on the stream has run, and the stream goes on
// when it has returned. Run may read and write page-locked host memory.
//
// CUDA demands of a function on the host (cuLaunchHostFunc):
//
//   - It makes no call of CUDA.
//   - It waits for no work of the GPU, unless that work is certain to run before it.
//   - Functions of other streams may have to wait until it returns, in any order.
//   - It is not called when the context has failed.
//
// So the function given to the driver does no more than count, and never waits. Run is called on a goroutine of the stream, and the
// stream waits for it by cuStreamWaitValue32. Run itself must keep the first two rules, or the stream waits forever.
//
// An error or a panic of Run stops the stream with a *runtime.StreamError that names the launch. The driver has later work already, and
// copies and kernels among it still run, on this stream and on those that wait for it. So all streams of the device stop, and events that
// are not waited for yet fail. A HostLaunch is not part of a graph: ErrCapturing.
type HostLaunch interface {
	runtime.Launch
	Run() error
}

// worker has the CPU do a stream's host work.
type worker interface {
	work(l HostLaunch, on *Stream) error
}

// Name returns the name given to NewStream.
func (s *Stream) Name() string { return s.name }

// Copy issues a copy between the spaces of the device.
func (s *Stream) Copy(dst, src runtime.Span) error {
	if err := s.extent.CheckCopy(dst, src); err != nil {
		return err
	}
	c, err := s.begin("copy")
	if err != nil {
		return err
	}
	defer s.end()
	if src.Bytes == 0 {
		return nil
	}
	if call, err := s.copy(dst, src); err != nil {
		return s.stop(c, fmt.Sprintf("copy %v to %v", src, dst), callError(call, err))
	}
	return nil
}

func (s *Stream) copy(dst, src runtime.Span) (call string, err error) {
	m := &s.device.memory
	switch {
	case dst.Space == runtime.Arena && src.Space == runtime.Arena:
		return "cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(m.at(dst), m.at(src), src.Bytes, s.stream)
	case dst.Space == runtime.Arena:
		return "cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(m.at(dst), m.hostAt(src), src.Bytes, s.stream)
	case src.Space == runtime.Arena:
		return "cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(m.hostAt(dst), m.at(src), src.Bytes, s.stream)
	}
	// Page-locked memory has the same address for the GPU.
	to, from := cu.DevicePtr(uintptr(m.hostAt(dst))), cu.DevicePtr(uintptr(m.hostAt(src)))
	return "cuMemcpyAsync", cu.MemcpyAsync(to, from, src.Bytes, s.stream)
}

// CopyPeer issues a copy from the arena to that of another GPU, or of another part of this one.
func (s *Stream) CopyPeer(peer runtime.Device, dst, src runtime.Span) error {
	p, ok := peer.(*Device)
	if !ok || p == nil {
		return s.wrap("copy to peer", runtime.ErrForeignPeer)
	}
	if p == s.device {
		return s.Copy(dst, src)
	}
	theirs, err := p.enter(s)
	if err != nil {
		return s.wrap("copy to peer", err)
	}
	defer p.leave()
	if err := s.extent.CheckPeerCopy(theirs.Extent, dst, src); err != nil {
		return err
	}
	c, err := s.begin("copy to peer")
	if err != nil {
		return err
	}
	defer s.end()
	if src.Bytes == 0 {
		return nil
	}
	if call, err := s.copyPeer(p, theirs.at(dst), src); err != nil {
		return s.stop(c, fmt.Sprintf("copy %v to %v of %s", src, dst, p.name), callError(call, err))
	}
	return nil
}

func (s *Stream) copyPeer(p *Device, to cu.DevicePtr, src runtime.Span) (call string, err error) {
	d := s.device
	from := d.memory.at(src)
	if p.context == d.context {
		return "cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(to, from, src.Bytes, s.stream)
	}
	d.reach(p)
	return "cuMemcpyPeerAsync", cu.MemcpyPeerAsync(to, p.context, from, d.context, src.Bytes, s.stream)
}

// Record makes ev stand for everything issued so far. On a stream that has stopped, ev fails.
func (s *Stream) Record(ev runtime.Event) error {
	e, ok := ev.(*Event)
	if !ok || e == nil || e.device != s.device {
		return s.wrap("record", runtime.ErrForeignEvent)
	}
	c, err := s.begin("record")
	if err != nil {
		if stopped := s.failure(); stopped != nil {
			e.mark(stopped, nil)
		}
		return err
	}
	defer s.end()
	if c != nil {
		return s.stop(c, "record", c.record(s, e))
	}
	if err := e.event.Record(s.stream); err != nil {
		err := s.stop(c, "record", callError("cuEventRecord", err))
		e.mark(s.failure(), nil)
		return err
	}
	e.mark(nil, nil)
	return nil
}

// Wait makes later work wait for ev. When the stream that recorded ev had stopped, this one stops too.
func (s *Stream) Wait(ev runtime.Event) error {
	e, ok := ev.(*Event)
	if !ok || e == nil {
		return s.wrap("wait", runtime.ErrForeignEvent)
	}
	c, err := s.begin("wait")
	if err != nil {
		return err
	}
	defer s.end()
	if e.device != s.device {
		if !e.hold() {
			return nil // a device waits for all of its work before it closes
		}
		defer e.release()
	}
	if c != nil {
		return s.stop(c, "wait", c.wait(s, e))
	}
	at, recorded, err := e.state()
	if err == nil && recorded {
		err = callError("cuStreamWaitEvent", s.stream.Wait(at, 0))
	}
	return s.stop(c, "wait", err)
}

// Synchronize blocks until everything issued has run.
func (s *Stream) Synchronize() error {
	d := s.device
	d.lifetime.RLock()
	defer d.lifetime.RUnlock()
	if d.closed.Load() {
		return s.wrap("synchronize", runtime.ErrClosed)
	}
	if c := d.capturing.Load(); c != nil {
		return c.fail(s.wrap("synchronize", ErrCapturing))
	}
	if err := d.Run(s.stream.Synchronize); err != nil {
		return s.stopWith("synchronize", fmt.Errorf("%w; CUDA_LAUNCH_BLOCKING=1 in the environment names the launch that failed",
			callError("cuStreamSynchronize", err)))
	}
	return s.failure()
}

// drain waits for everything issued, for Close. Failures are not its concern.
func (s *Stream) drain() {
	s.device.lifetime.RLock()
	defer s.device.lifetime.RUnlock()
	if s.stream == (cu.Stream{}) {
		return // destroyed by the Close of its device, which has drained it
	}
	_ = s.device.Run(s.stream.Synchronize) // Synchronize reports it
}

// begin takes the thread and the stream for one call, until end. It returns the capture that the call is a part of, if
// any.
func (s *Stream) begin(op string) (*capture, error) {
	s.device.lifetime.RLock()
	if s.device.closed.Load() {
		s.device.lifetime.RUnlock()
		return nil, s.wrap(op, runtime.ErrClosed)
	}
	s.mu.Lock()
	goruntime.LockOSThread()
	c, err := s.prepare()
	if err != nil {
		s.end()
		return nil, err
	}
	return c, nil
}

func (s *Stream) prepare() (*capture, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	if err := cu.SetCurrentContext(s.device.context); err != nil {
		return nil, s.stopWith("", callError("cuCtxSetCurrent", err))
	}
	c := s.device.capturing.Load()
	if c == nil || s.capture == c {
		return c, nil
	}
	return c, c.fail(c.join(s))
}

func (s *Stream) end() {
	goruntime.UnlockOSThread()
	s.mu.Unlock()
	s.device.lifetime.RUnlock()
}

// stop deals with the error of a call: outside of a capture the stream stops, and Synchronize and later calls report it.
// In a capture nothing has run, so the capture fails instead, and says so at once.
func (s *Stream) stop(c *capture, op string, err error) error {
	if err == nil {
		return nil
	}
	if c != nil {
		return c.fail(s.wrap(op, err))
	}
	_ = s.stopWith(op, err)
	return nil
}

// stopWith stops the stream, unless it has stopped already, and returns why it has.
func (s *Stream) stopWith(op string, err error) error {
	s.stopped.CompareAndSwap(nil, &runtime.StreamError{Device: s.device.name, Stream: s.name, Op: op, Err: err})
	return s.stopped.Load()
}

// failure returns why the stream has stopped.
func (s *Stream) failure() error {
	if err := s.stopped.Load(); err != nil {
		return err
	}
	if err := s.device.failure(); err != nil {
		return s.stopWith("work after host work", err)
	}
	return nil
}

func (s *Stream) wrap(op string, err error) error {
	return fmt.Errorf("%s: stream %s: %s: %w", s.device.name, s.name, op, err)
}
