package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// LinkField is the chain file's extra field with the measured link, a LinkProfile.
const LinkField = "link"

// LinkProfile is the link between device and host memory, as measured: bytes per second of each direction, alone and
// while the other one copies too. In a chain file it stands beside bandwidth_bytes_per_s, the slower direction alone.
type LinkProfile struct {
	ToHost           float64 `json:"to_host_bytes_per_s"`
	ToDevice         float64 `json:"to_device_bytes_per_s"`
	ToHostTogether   float64 `json:"to_host_together_bytes_per_s"`
	ToDeviceTogether float64 `json:"to_device_together_bytes_per_s"`
	// Slowdown is the time of a sequence, of store-all's where that has room, while both directions copy without pause,
	// divided by its time without copies.
	Slowdown float64 `json:"compute_slowdown"`
	// Duplex lets plans use both directions at once.
	Duplex bool `json:"duplex"`
}

// LinkOf returns the link that plans of a chain may use: its bandwidth, duplex when its profile says so.
func LinkOf(c *chain.Chain) schedule.Link {
	var p LinkProfile
	if json.Unmarshal(c.Extra[LinkField], &p) != nil {
		p = LinkProfile{}
	}
	return schedule.Link{Bandwidth: c.Bandwidth, Duplex: p.Duplex}
}

// duplexGain is how many times the bytes of one direction alone both together must move for a link to count as duplex.
const duplexGain = 1.5

// MeasuredLink returns the link of a chain as it was measured: duplex where both directions together are at least 1.5 times as fast
// as one, and otherwise, or without a measurement, LinkOf.
func MeasuredLink(c *chain.Chain) schedule.Link {
	if together := togetherOf(c); together > 0 && 2*together >= duplexGain*c.Bandwidth {
		return DuplexLink(c)
	}
	return LinkOf(c)
}

// DuplexLink returns the link of a chain for both directions at once, at the rate of the slower one then, as far as that was measured.
func DuplexLink(c *chain.Chain) schedule.Link {
	link := LinkOf(c)
	if together := togetherOf(c); together > 0 && !link.Duplex {
		link.Bandwidth = min(link.Bandwidth, together)
	}
	link.Duplex = true
	return link
}

// togetherOf returns bytes per second of the slower direction of a chain's link while the other one copies, too; 0 where that is not
// known.
func togetherOf(c *chain.Chain) float64 {
	var p LinkProfile
	if json.Unmarshal(c.Extra[LinkField], &p) != nil {
		return 0
	}
	return min(p.ToHostTogether, p.ToDeviceTogether)
}

// ContentionOf returns the seconds that computation loses for each second of a transfer, as the link of a chain was measured: with
// copies in both directions a step took Slowdown times as long. 0 where that is not known, and where simulations know better.
func ContentionOf(c *chain.Chain) float64 {
	var p LinkProfile
	if c.Contends() || json.Unmarshal(c.Extra[LinkField], &p) != nil || !(p.Slowdown > 1) {
		return 0
	}
	return (1 - 1/p.Slowdown) / 2
}

// WithLink returns the chain with another link.
func WithLink(c *chain.Chain, link schedule.Link) (*chain.Chain, error) {
	out := *c
	out.Bandwidth, out.Extra = link.Bandwidth, maps.Clone(c.Extra)
	if out.Extra == nil {
		out.Extra = map[string]json.RawMessage{}
	}
	// Fields of a profile that this program does not know stay.
	fields := map[string]json.RawMessage{}
	if raw, ok := c.Extra[LinkField]; ok {
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, fmt.Errorf("field %q: %w", LinkField, err)
		}
	}
	fields["duplex"] = fmt.Append(nil, link.Duplex)
	raw, err := json.Marshal(fields)
	out.Extra[LinkField] = raw
	return &out, err
}

// Size of a measurement: more and more bytes back and forth, from few to so many, then again and again, until they take so long.
// Copies that take longer than patience end it.
const (
	firstProbe    = 4 << 10
	probeBytes    = 4 << 20
	mostWindow    = 64 << 20 // more than caches hold
	probeFor      = 60 * time.Millisecond
	probePatience = 10 * time.Second
)

// link measures the link, and what ops and copies take from each other, which it writes into the chain.
func (p *profile) link(ctx context.Context, exercises []*Exercise, c *chain.Chain) (link LinkProfile, err error) {
	x, probe, err := p.beside(exercises)
	if err != nil {
		return link, err
	}
	err = p.with(x, probe, probe.limit(x.Extent, p.limit), func(t *OpTimer) error {
		m, err := t.newProber(probe, probePatience)
		if err != nil {
			return err
		}
		if link, err = m.measure(ctx); err != nil {
			return err
		}
		if t.step.extent+2*probe.device > t.limit { // copies would write over what the step computes with
			for range linkSteps + hostUpdateSteps {
				p.step()
			}
			return nil
		}
		b, err := m.besides(ctx, x, p.opt.Enough, p.step)
		if err != nil {
			return err
		}
		link.Slowdown = b.slowdown()
		b.contend(c, &link)
		return m.besideUpdates(ctx, p, c)
	})
	return link, err
}

// windows are the bytes of memory that a direction of a measurement of the link has for itself on each side. Copies go through them
// from one end to the other, as what plans transfer is seldom in a cache.
type windows struct{ device, host int64 }

// beside returns the exercise beside which the link is measured, and the windows for copies: as long as what the exercise computes with,
// up to mostWindow. Those of the device lie behind its blocks, the longest that leaves them probeBytes, or, with what room there is, the
// smallest. Where that has all memory, they lie in it.
func (p *profile) beside(exercises []*Exercise) (x *Exercise, probe windows, err error) {
	byExtent := func(a, b *Exercise) int { return cmp.Compare(a.Extent, b.Extent) }
	all, err := p.Exercises(p.lib, p.limit-2*probeBytes, false)
	switch {
	case err == nil:
		x = slices.MaxFunc(all, byExtent)
	case errors.As(err, new(*WindowError)):
		x = slices.MinFunc(exercises, byExtent)
	default:
		return nil, probe, err
	}
	host := int64(math.MaxInt64)
	if p.hostLimit > 0 {
		host = p.hostLimit - x.placeHost(windows{}).bytes
	}
	return x, windowsBeside(x.Extent, p.limit, host), nil
}

// windowsBeside returns the windows beside what takes extent bytes of limit, where host bytes of host memory are left.
func windowsBeside(extent, limit, host int64) (w windows) {
	room := limit - kernels.Align(extent)
	if room < 2*kernels.Alignment {
		room = extent
	}
	half := func(bytes int64) int64 { return bytes / 2 / kernels.Alignment * kernels.Alignment }
	w.host = min(max(kernels.Align(extent), probeBytes), mostWindow)
	w.host = min(w.host, max(half(host), probeBytes))
	w.device = min(half(room), w.host)
	return w
}

// limit returns the end of the windows of the device: behind what takes extent bytes, where limit has that much, and otherwise in it.
func (w windows) limit(extent, limit int64) int64 {
	return min(kernels.Align(extent)+2*w.device, max(limit, extent)) / kernels.Alignment * kernels.Alignment
}

// prober measures the link of a device. A direction's copies are between windows of their own.
type prober struct {
	*OpTimer
	probe     windows
	bytes     int64    // of the longest copy
	direction [2]probe // to the host, to the device
	patience  time.Duration
}

// probe is one direction of the link.
type probe struct {
	stream   runtime.Stream
	dst, src runtime.Span // the whole windows
	bytes    int64        // of a copy
	copied   int64        // copies

	start, end, begin runtime.Event
}

// copy queues a copy, of what comes next in each window.
func (d *probe) copy() error {
	next := func(window runtime.Span) runtime.Span {
		return window.Part(d.copied%(window.Bytes/d.bytes)*d.bytes, d.bytes)
	}
	defer func() { d.copied++ }()
	return d.stream.Copy(next(d.dst), next(d.src))
}

// measure measures both directions, alone and together. Errors: ErrSlowLink, when a few copies take longer than the patience, of
// devices that can be abandoned.
func (m *prober) measure(ctx context.Context) (p LinkProfile, err error) {
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

// touch writes to all of the windows, as operating systems give memory when it is first written to, and what reads it before reads one
// page of zeros again and again. It copies nothing: the link may be slow.
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

func (t *OpTimer) newProber(of windows, patience time.Duration) (*prober, error) {
	m := &prober{OpTimer: t, probe: of, bytes: min(of.device, of.host, probeBytes), patience: patience}
	for i, name := range []string{"probe to host", "probe to device"} {
		d := &m.direction[i]
		dev := runtime.Span{Offset: t.limit - int64(i+1)*of.device, Bytes: of.device}
		host := t.host.probe.Part(int64(i)*of.host, of.host)
		if d.dst, d.src = host, dev; i == 1 {
			d.dst, d.src = dev, host
		}
		var err error
		if d.stream, err = t.device.NewStream(name); err != nil {
			return nil, err
		}
		for _, ev := range []*runtime.Event{&d.start, &d.end, &d.begin} {
			if *ev, err = t.device.NewEvent(); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
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
			d := &m.direction[i]
			took, err := d.end.Since(d.start)
			if err != nil {
				return err
			}
			*bytesPerSec[k] = float64(copies) * float64(size) / max(took.Seconds(), 1e-9)
		}
		switch {
		case shortest >= probeFor:
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
		d := &m.direction[i]
		err = cmp.Or(err, d.stream.Record(d.start), d.stream.Synchronize())
	}
	for _, i := range directions {
		d := &m.direction[i]
		d.bytes = size
		for range copies {
			err = cmp.Or(err, d.copy())
		}
		err = cmp.Or(err, d.stream.Record(d.end))
	}
	for k, i := range directions {
		d := &m.direction[i]
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
