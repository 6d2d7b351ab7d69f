//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
	"gorgonia.org/cu"

	"plimsoll/internal/ram"
	"plimsoll/internal/units"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/cuda/monitor"
)

// Reserve allocates the arena with one cuMemAlloc and the host space with one cuMemHostAlloc, and fills both with zeros.
func (d *Device) Reserve(arena, host int64) error {
	return d.use("reserve", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.reserved {
			return d.wrap("reserve", runtime.ErrReserved)
		}
		if err := errors.Join(d.admit(runtime.Arena, arena, d.limit), d.admit(runtime.Host, host, d.hostLimit)); err != nil {
			return err
		}
		m, err := d.allocate(arena, host)
		if err != nil {
			return errors.Join(err, m.free())
		}
		d.memory, d.reserved = m, true
		return nil
	})
}

func (d *Device) admit(space runtime.Space, asked, limit int64) error {
	if asked < 0 {
		return d.wrap("reserve", fmt.Errorf("%v of %d bytes", space, asked))
	}
	if asked > limit && (limit > 0 || space == runtime.Arena) {
		return &runtime.OutOfMemoryError{Device: d.name, Space: space, Asked: asked, Limit: limit}
	}
	return nil
}

// allocate returns the memory that it got also when it fails.
func (d *Device) allocate(arena, host int64) (m memory, err error) {
	m.Extent = runtime.Extent{Device: d.name, Arena: arena, Host: host}
	if arena > 0 {
		if m.arena, err = cu.MemAlloc(arena); err != nil {
			return m, d.refused(runtime.Arena, "cuMemAlloc", arena, d.limit, err)
		}
		if err := cu.MemsetD8(m.arena, 0, arena); err != nil {
			return m, d.wrap("reserve", callError("cuMemsetD8", err))
		}
		// cuMemsetD8 may return before the fill has ended, and streams do not wait for it.
		if err := cu.Synchronize(); err != nil {
			return m, d.wrap("reserve", callError("cuCtxSynchronize", err))
		}
	}
	if host > 0 {
		if m.host, err = driver.AllocHost(host); err != nil {
			return m, d.refused(runtime.Host, "cuMemHostAlloc", host, d.hostLimit, err)
		}
		clear(unsafe.Slice((*byte)(m.host), host))
	}
	return m, nil
}

// refused explains an allocation that the driver refuses.
func (d *Device) refused(space runtime.Space, call string, asked, limit int64, err error) error {
	if !isResult(err, driver.OutOfMemory) {
		return d.wrap("reserve", callError(call, err))
	}
	oom := &runtime.OutOfMemoryError{Device: d.name, Space: space, Asked: asked, Limit: max(limit, 0)}
	switch space {
	case runtime.Arena:
		oom.Detail = d.occupancy()
	case runtime.Host:
		oom.Detail = pageLocking()
	}
	return oom
}

// pageLocking says what the system lets a process page-lock, and what memory there is.
func pageLocking() string {
	text := "the system refused to page-lock that"
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err == nil && l.Cur != unix.RLIM_INFINITY {
		text += fmt.Sprintf("; ulimit -l is %s", units.Bytes(int64(l.Cur)))
	}
	if half, err := ram.HalfOfAvailable(); err == nil {
		text += fmt.Sprintf("; programs can still take %s", units.Bytes(2*half))
	}
	return text + ": give less --host-memory"
}

// occupancy says how much of the GPU's memory is free and, where NVML can tell, who holds the rest.
func (d *Device) occupancy() string {
	free, total, err := cu.MemInfo()
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("%s of %s are free now", units.Bytes(free), units.Bytes(total))
	if holders := monitor.Holders(d.bus); holders != "" {
		text += ", " + holders
	}
	return text
}

// HostBytes returns the bytes of a span of the host space.
func (d *Device) HostBytes(s runtime.Span) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return nil, d.wrap("host bytes", err)
	}
	if err := d.memory.CheckHost("host bytes", s); err != nil {
		return nil, err
	}
	if s.Bytes == 0 {
		return []byte{}, nil
	}
	return unsafe.Slice((*byte)(d.memory.hostAt(s)), s.Bytes), nil
}

// Address returns where a span of the arena is, for the parameters of kernels.
func (d *Device) Address(s runtime.Span) (cu.DevicePtr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return 0, d.wrap("address", err)
	}
	if s.Space != runtime.Arena {
		return 0, &runtime.SpanError{Device: d.name, Op: "address", Span: s, Reason: "is not in the arena"}
	}
	if err := d.memory.Check("address", s); err != nil {
		return 0, err
	}
	return d.memory.at(s), nil
}
