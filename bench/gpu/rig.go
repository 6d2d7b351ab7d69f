package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/runtime"
)

// rig is an opened device with memory, and a stream for what is timed.
type rig struct {
	executor.Target
	stream     runtime.Stream
	start, end []runtime.Event // a pair for each repeat
	host       []byte
}

// repeats is how often a launch is timed; the median counts.
const repeats = 11

func (p *part) rig(arena, host int64) (*rig, error) {
	t, err := p.target()
	if err != nil {
		return nil, err
	}
	r := &rig{Target: t}
	if err := r.prepare(arena, host); err != nil {
		return nil, errors.Join(err, t.Device.Close())
	}
	return r, nil
}

func (r *rig) prepare(arena, host int64) (err error) {
	if err = r.Device.Reserve(arena, host); err != nil {
		return err
	}
	if r.stream, err = r.Device.NewStream("timed"); err != nil {
		return err
	}
	if r.start, err = events(r.Device, repeats); err != nil {
		return err
	}
	if r.end, err = events(r.Device, repeats); err != nil {
		return err
	}
	r.host, err = r.Device.HostBytes(runtime.Span{Space: runtime.Host, Bytes: host})
	return err
}

func events(d runtime.Device, n int) (all []runtime.Event, err error) {
	for range n {
		e, err := d.NewEvent()
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (r *rig) close() error { return r.Device.Close() }

// fill puts numbers of both signs from 0.5 to 2 into the arena's first bytes, whether they are read as float32 or as
// bfloat16. The host space is its source; its size divides the copies.
func (r *rig) fill(bytes int64) error {
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+1 < len(r.host); i += 2 {
		v := random.Uint32()
		r.host[i], r.host[i+1] = byte(v), 0x3f|byte(v>>24)&0x80
	}
	for at := int64(0); at < bytes; at += int64(len(r.host)) {
		n := min(int64(len(r.host)), bytes-at)
		dst := runtime.Span{Offset: at, Bytes: n}
		if err := r.stream.Copy(dst, runtime.Span{Space: runtime.Host, Bytes: n}); err != nil {
			return err
		}
	}
	return r.stream.Synchronize()
}

// index puts random numbers below extent into a span of at most the host space.
func (r *rig) index(s runtime.Span, extent uint32) error {
	n := min(s.Bytes, int64(len(r.host)))
	random := rand.New(rand.NewPCG(3, 4))
	for i := int64(0); i+4 <= n; i += 4 {
		binary.LittleEndian.PutUint32(r.host[i:], random.Uint32N(extent))
	}
	return cmp.Or(r.stream.Copy(runtime.Span{Offset: s.Offset, Bytes: n}, runtime.Span{Space: runtime.Host, Bytes: n}), r.stream.Synchronize())
}

// time returns the median seconds of the work that issue puts on the stream, by the device's events. Function before,
// which may be nil, is called ahead of every repeat, and its work does not count. The first repeat does not count
// either.
func (r *rig) time(before, issue func() error) (float64, error) {
	for i := range repeats {
		if before != nil {
			if err := before(); err != nil {
				return 0, err
			}
		}
		if err := cmp.Or(r.stream.Record(r.start[i]), issue(), r.stream.Record(r.end[i])); err != nil {
			return 0, err
		}
	}
	if err := r.stream.Synchronize(); err != nil {
		return 0, err
	}
	var all []float64
	for i := 1; i < repeats; i++ {
		took, err := r.end[i].Since(r.start[i])
		if err != nil {
			return 0, err
		}
		all = append(all, took.Seconds())
	}
	return stats.Median(all), nil
}
