package bench

import (
	"plimsoll/executor/train"
	"plimsoll/runtime"
)

// CopyBandwidth measures copies between a fresh device's arena and host memory, in bytes per second: the medians of
// a few copies of 64 MiB, after one that touches the pages.
func CopyBandwidth(d runtime.Device) (toDevice, toHost float64, err error) {
	const bytes, repeats = 64 << 20, 5
	if err := d.Reserve(bytes, bytes); err != nil {
		return 0, 0, err
	}
	s, err := d.NewStream("copies")
	if err != nil {
		return 0, 0, err
	}
	arena, host := runtime.Span{Bytes: bytes}, runtime.Span{Space: runtime.Host, Bytes: bytes}
	if toDevice, err = copySpeed(d, s, arena, host, repeats); err != nil {
		return 0, 0, err
	}
	toHost, err = copySpeed(d, s, host, arena, repeats)
	return toDevice, toHost, err
}

func copySpeed(d runtime.Device, s runtime.Stream, dst, src runtime.Span, repeats int) (float64, error) {
	var speeds []float64
	for i := range repeats + 1 {
		seconds, err := copySeconds(d, s, dst, src)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			speeds = append(speeds, float64(dst.Bytes)/seconds)
		}
	}
	return train.Median(speeds), nil
}

func copySeconds(d runtime.Device, s runtime.Stream, dst, src runtime.Span) (float64, error) {
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
	if err := s.Copy(dst, src); err != nil {
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
