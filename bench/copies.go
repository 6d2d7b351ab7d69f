package bench

import (
	"cmp"
	"time"

	"plimsoll/runtime"
)

// CopyBytes is the arena, and the host space, that measuring copies reserves.
const CopyBytes = 64 << 20

// Copies grow from FirstCopy bytes until one takes copyFor, and then a few are timed, unless one took longer than slowCopy.
const (
	FirstCopy = 4 << 10
	copyFor   = 10 * time.Millisecond
	slowCopy  = 200 * time.Millisecond
)

// CopyBandwidth measures copies between a fresh device's arena and host memory, in bytes per second, and returns the fastest of a
// few. Each copy is long enough to be timed and short enough for a slow link. A copy that waits for a thread seems slower than it
// is; no copy seems faster.
func CopyBandwidth(d runtime.Device) (toDevice, toHost float64, err error) {
	if err := d.Reserve(CopyBytes, CopyBytes); err != nil {
		return 0, 0, err
	}
	s, err := d.NewStream("copies")
	if err != nil {
		return 0, 0, err
	}
	arena, host := runtime.Span{Bytes: CopyBytes}, runtime.Span{Space: runtime.Host, Bytes: CopyBytes}
	toDevice, err = copySpeed(func(n int64) (time.Duration, error) {
		return copyTime(d, s, func() error { return s.Copy(arena.Part(0, n), host.Part(0, n)) })
	})
	if err != nil {
		return 0, 0, err
	}
	toHost, err = copySpeed(func(n int64) (time.Duration, error) {
		return copyTime(d, s, func() error { return s.Copy(host.Part(0, n), arena.Part(0, n)) })
	})
	return toDevice, toHost, err
}

// PeerBandwidth likewise measures copies from the arena of a device to that of a peer. Both arenas have CopyBytes reserved. It is +Inf
// where copies take no time.
func PeerBandwidth(d, peer runtime.Device) (float64, error) {
	s, err := d.NewStream("copies to a peer")
	if err != nil {
		return 0, err
	}
	return copySpeed(func(n int64) (time.Duration, error) {
		return copyTime(d, s, func() error { return s.CopyPeer(peer, runtime.Span{Bytes: n}, runtime.Span{Bytes: n}) })
	})
}

// copySpeed grows copies as CopyBandwidth says, and returns bytes per second. The time of a copy of a number of bytes comes from timed.
func copySpeed(timed func(bytes int64) (time.Duration, error)) (float64, error) {
	bytes := int64(FirstCopy)
	var took time.Duration
	for {
		var err error
		if took, err = timed(bytes); err == nil && took >= copyFor { // it may have waited for a thread
			var again time.Duration
			again, err = timed(bytes)
			took = min(took, again)
		}
		if err != nil {
			return 0, err
		}
		if took >= copyFor || bytes >= CopyBytes {
			break
		}
		bytes *= 2
	}
	if took > slowCopy {
		return float64(bytes) / took.Seconds(), nil
	}
	const repeats = 5
	fastest := 0.0 // without the first one, which touched the pages
	for range repeats {
		took, err := timed(bytes)
		if err != nil {
			return 0, err
		}
		fastest = max(fastest, float64(bytes)/took.Seconds())
	}
	return fastest, nil
}

// copyTime returns how long a stream takes for a copy. The copy is queued once its begin has been recorded. A throttled
// copy is due from when it is queued, and a begin recorded later than that would make it seem faster than its link.
func copyTime(d runtime.Device, s runtime.Stream, copying func() error) (time.Duration, error) {
	var events [2]runtime.Event
	for i := range events {
		var err error
		if events[i], err = d.NewEvent(); err != nil {
			return 0, err
		}
	}
	if err := cmp.Or(s.Record(events[0]), s.Synchronize()); err != nil {
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
	return events[1].Since(events[0])
}
