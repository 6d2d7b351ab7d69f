package bench

import (
	"plimsoll/executor/train"
	"plimsoll/runtime"
)

// CopyBytes is the arena, and the host space, that measuring copies reserves.
const CopyBytes = 64 << 20

// CopyBandwidth measures copies between a fresh device's arena and host memory, in bytes per second: the medians of
// a few copies of 64 MiB, after one that touches the pages.
func CopyBandwidth(d runtime.Device) (toDevice, toHost float64, err error) {
	if err := d.Reserve(CopyBytes, CopyBytes); err != nil {
		return 0, 0, err
	}
	s, err := d.NewStream("copies")
	if err != nil {
		return 0, 0, err
	}
	arena, host := runtime.Span{Bytes: CopyBytes}, runtime.Span{Space: runtime.Host, Bytes: CopyBytes}
	if toDevice, err = copySpeed(d, s, CopyBytes, func() error { return s.Copy(arena, host) }); err != nil {
		return 0, 0, err
	}
	toHost, err = copySpeed(d, s, CopyBytes, func() error { return s.Copy(host, arena) })
	return toDevice, toHost, err
}

// PeerBandwidth measures copies from the arena of a device to that of a peer, in bytes per second: the median of a few,
// each long enough to be timed and short enough for a slow link. Both arenas have CopyBytes reserved. It is +Inf where
// copies take no time.
func PeerBandwidth(d, peer runtime.Device) (float64, error) {
	s, err := d.NewStream("copies to a peer")
	if err != nil {
		return 0, err
	}
	speed := func(bytes int64) (float64, error) {
		span := runtime.Span{Bytes: bytes}
		return copySpeed(d, s, bytes, func() error { return s.CopyPeer(peer, span, span) })
	}
	const probe, aim = 1 << 20, 0.01 // bytes, seconds
	rough, err := speed(probe)
	if err != nil || rough*aim <= probe {
		return rough, err
	}
	return speed(int64(min(rough*aim, CopyBytes)))
}

// copySpeed times a copy of so many bytes, which the stream is given each time, once for warming up and then a few times.
func copySpeed(d runtime.Device, s runtime.Stream, bytes int64, copying func() error) (float64, error) {
	const repeats = 5
	var speeds []float64
	for i := range repeats + 1 {
		seconds, err := copySeconds(d, s, copying)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			speeds = append(speeds, float64(bytes)/seconds)
		}
	}
	return train.Median(speeds), nil
}

func copySeconds(d runtime.Device, s runtime.Stream, copying func() error) (float64, error) {
	var events [2]runtime.Event
	for i := range events {
		var err error
		if events[i], err = d.NewEvent(); err != nil {
			return 0, err
		}
	}
	if err := s.Record(events[0]); err != nil {
		return 0, err
	}
	if err := copying(); err != nil {
		return 0, err
	}
	if err := s.Record(events[1]); err != nil {
		return 0, err
	}
	if err := s.Synchronize(); err != nil {
		return 0, err
	}
	took, err := events[1].Since(events[0])
	return took.Seconds(), err
}
