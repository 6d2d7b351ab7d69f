//go:build cuda && linux && amd64

package cuda

import "plimsoll/runtime"

// HostLaunch is work for the CPU in the order of a stream: it begins when everything before it on the stream has run, and the stream
// goes on when it has returned. Run may read and write page-locked host memory.
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

// launchOnHost issues host work. The caller is between begin and end. The first call takes 64 bytes of page-locked memory, which do not
// count as memory of the host space; later calls allocate nothing.
func (s *Stream) launchOnHost(work HostLaunch) error {
	if s.host == nil {
		if err := s.openHost(); err != nil {
			return err
		}
	}
	return s.host.issue(message{staging: s.host, work: work, fills: true}, s)
}

func (s *Stream) openHost() error {
	s.device.mu.Lock()
	defer s.device.mu.Unlock()
	h := newStaging(s.device, "host work of "+s.name, 0)
	if err := h.open(); err != nil {
		return err
	}
	s.host = h
	return nil
}

// fail stops the stream of a message that failed. Host work stops the device's other streams, too: one may wait for it already.
func (c *call) fail(err error) {
	_ = c.stream.stopWith(c.Kernel(), err)
	if c.work != nil {
		c.stream.device.failed.CompareAndSwap(nil, c.stream.stopped.Load())
	}
}

// failure returns the error of host work that has failed.
func (d *Device) failure() error {
	if err := d.failed.Load(); err != nil {
		return err
	}
	return nil
}
