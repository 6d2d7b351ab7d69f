package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
)

// A measurement makes larger and then more copies until they take probeFor, or less (ProfileOptions.lasting). Copies that take longer than probePatience end it.
const (
	probeFor      = 60 * time.Millisecond
	probePatience = 10 * time.Second
)

// prober measures the link of a device. A direction's copies are between windows of their own.
type prober struct {
	*OpTimer
	probe     windows
	bytes     int64     // of the longest copy
	direction [2]*probe // to the host, to the device
	patience  time.Duration
	lasting   time.Duration // of the copies that give a bandwidth
}

func (t *OpTimer) newProber(of windows, patience time.Duration) (*prober, error) {
	m := &prober{OpTimer: t, probe: of, bytes: min(of.device, of.host, probeBytes), patience: patience, lasting: probeFor}
	for i, name := range []string{"probe to host", "probe to device"} {
		device := runtime.Span{Offset: t.limit - int64(i+1)*of.device, Bytes: of.device}
		dst, src := t.host.probe.Part(int64(i)*of.host, of.host), device
		if i == 1 {
			dst, src = src, dst
		}
		var err error
		if m.direction[i], err = newProbe(t.device, name, dst, src); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// measure measures both directions, alone and together. Errors: ErrSlowLink, when a few copies take longer than the patience, of
// devices that can be abandoned.
func (m *prober) measure(ctx context.Context) (p executor.LinkProfile, err error) {
	if err := m.touch(); err != nil {
		return p, err
	}
	for _, of := range []struct {
		directions  []int
		bytesPerSec []*float64
	}{
		{[]int{0}, []*float64{&p.ToHost}},
		{[]int{1}, []*float64{&p.ToDevice}},
		{[]int{0, 1}, []*float64{&p.ToHostTogether, &p.ToDeviceTogether}},
	} {
		if err := m.bandwidth(ctx, of.directions, of.bytesPerSec); err != nil {
			return p, err
		}
	}
	return p, nil
}

// touch writes to all of the windows. Operating systems give memory when it is first written to, and earlier reads read one page of
// zeros again and again. It copies nothing: the link may be slow.
func (m *prober) touch() error {
	const page = 4 << 10
	for i := range m.direction {
		host, err := m.device.HostBytes(m.host.probe.Part(int64(i)*m.probe.host, m.probe.host))
		if err != nil {
			return err
		}
		for at := 0; at < len(host); at += page {
			host[at] = 1
		}
	}
	a, b := m.direction[chain.ToHost].src, m.direction[chain.ToDevice].dst
	call := kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(int(a.Bytes / 4))}}
	for _, o := range []kernels.Operands{{X: []runtime.Span{a}, Y: b}, {X: []runtime.Span{b}, Y: a}} {
		write, err := m.library.Prepare(call, o)
		if err != nil {
			return err
		}
		if err := m.direction[0].stream.Launch(write); err != nil {
			return err
		}
	}
	return m.direction[0].stream.Synchronize()
}

// bandwidth measures directions that copy at the same time, with larger and then with more copies until they take long enough.
func (m *prober) bandwidth(ctx context.Context, directions []int, bytesPerSec []*float64) error {
	for size, copies := min(firstProbe, m.bytes), 1; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		shortest, err := m.patiently(directions, size, copies)
		if err != nil {
			return err
		}
		for k, i := range directions {
			d := m.direction[i]
			took, err := d.end.Since(d.start)
			if err != nil {
				return err
			}
			*bytesPerSec[k] = float64(copies) * float64(size) / max(took.Seconds(), 1e-9)
		}
		switch {
		case shortest >= m.lasting:
			return nil
		case size < m.bytes:
			size = min(2*size, m.bytes)
		default:
			copies *= 2
		}
	}
}

// patiently is copy, but gives the device up when that takes too long.
func (m *prober) patiently(directions []int, size int64, copies int) (shortest time.Duration, err error) {
	if dev, ok := m.device.(runtime.Abandoner); ok {
		defer time.AfterFunc(m.patience, dev.Abandon).Stop()
	}
	start := time.Now()
	shortest, err = m.copy(directions, size, copies)
	if errors.Is(err, runtime.ErrAbandoned) && time.Since(start) >= m.patience {
		err = fmt.Errorf("%w: %s have not arrived in %v", ErrSlowLink, units.Bytes(size*int64(copies)), m.patience)
	}
	return shortest, err
}

// copy makes so many copies of a size in each direction and returns the time of the faster one. Copies are queued once their begin has
// been recorded: a throttled copy is due from when it is queued, and must not seem faster than its link.
func (m *prober) copy(directions []int, size int64, copies int) (shortest time.Duration, err error) {
	for _, i := range directions {
		d := m.direction[i]
		err = cmp.Or(err, d.stream.Record(d.start), d.stream.Synchronize())
	}
	for _, i := range directions {
		d := m.direction[i]
		d.bytes = size
		for range copies {
			err = cmp.Or(err, d.copy())
		}
		err = cmp.Or(err, d.stream.Record(d.end))
	}
	for k, i := range directions {
		d := m.direction[i]
		err = cmp.Or(err, d.stream.Synchronize())
		if err != nil {
			return 0, err
		}
		took, failure := d.end.Since(d.start)
		if failure != nil {
			return 0, failure
		}
		if k == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest, err
}
