//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"slices"

	"plimsoll/runtime"
)

// OnClose lets Close call f, once, with the context current, when all streams are done and nothing has been freed yet.
// Libraries that work in the context so end before it. Functions are called in the reverse order.
func (d *Device) OnClose(f func() error) error {
	return d.use("on close", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.closers = append(d.closers, f)
		return nil
	})
}

// Close waits for all streams, and for peers' copies into this arena, and gives everything back. Errors of the streams
// are Synchronize's to report.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return d.wrap("close", runtime.ErrClosed)
	}
	d.captureOne.Lock() // a capture ends soon now: its calls fail
	defer d.captureOne.Unlock()
	streams, visitors := d.users()
	for _, s := range streams {
		s.drain()
	}
	for _, s := range visitors {
		s.drain()
	}
	d.lifetime.Lock()
	defer d.lifetime.Unlock()
	err := d.Run(d.release)
	lost := errors.Is(err, ErrLost)
	contexts.leave(d.device, lost)
	if lost {
		return nil // the streams have reported it; the driver frees the memory with the context
	}
	return d.wrap("close", err)
}

// users returns the streams that may still use the memory, once no peer is about to issue a copy.
func (d *Device) users() (streams, visitors []*Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.visiting > 0 {
		d.left.Wait()
	}
	for s := range d.visitors {
		visitors = append(visitors, s)
	}
	return d.streams, visitors
}

// release gives back what the driver gave. Nobody issues any more, but somebody may have since Close drained the
// streams, so they are drained again.
func (d *Device) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.streams {
		d.lost = d.lost || s.stream.Synchronize() != nil // reported by Stream.Synchronize
	}
	return errors.Join(d.resources.release(), d.memory.free())
}

// release gives them back; the streams are drained.
func (r *resources) release() error {
	var all error
	note := func(call string, err error) { all = errors.Join(all, callError(call, err)) }
	for _, f := range slices.Backward(r.closers) {
		all = errors.Join(all, f())
	}
	for _, g := range r.graphs {
		note("cuGraphExecDestroy", g.destroy())
	}
	for _, k := range r.kernels {
		k.free()
	}
	for _, m := range r.modules {
		note("cuModuleUnload", m.module.Unload())
	}
	for _, e := range r.events {
		note("cuEventDestroy", e.destroy())
	}
	for _, s := range r.streams {
		note("cuStreamDestroy", s.stream.Destroy())
	}
	return all
}
