package host

import (
	"math"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll/runtime"
)

// link is one direction of a connection with a stated bandwidth. Copies reserve it chunk by chunk, so that copies
// that run at the same time share it fairly and together never exceed it. A nil link is as fast as memory.
type link struct {
	bandwidth float64 // bytes/s

	mu   sync.Mutex
	free time.Duration // when the last reservation ends
}

func newLink(bandwidth float64) *link {
	if bandwidth == 0 {
		return nil
	}
	return &link{bandwidth: bandwidth, free: longAgo}
}

// copy copies src to dst from an instant on, and returns when a link of this bandwidth would have delivered the last byte. Where memory is
// slower than the link, memory counts. Errors: runtime.ErrAbandoned.
func (l *link) copy(begin time.Duration, dst, src []byte, pause pauser) (due time.Duration, err error) {
	if l == nil {
		return begin + timed(dst, src), nil
	}
	due = begin
	busy := time.Duration(0) // what memory has taken
	for len(src) > 0 {
		n := min(l.chunk(), len(src))
		busy += timed(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
		due = max(l.reserve(due, n), begin+busy)
		if err := pause.until(due, len(src) == 0); err != nil {
			return due, err
		}
	}
	return due, nil
}

// timed copies src to dst, and returns how long that took.
func timed(dst, src []byte) time.Duration {
	before := now()
	copy(dst, src)
	return now() - before
}

// chunk is about a millisecond's worth: short enough to share fairly, long enough to sleep through.
func (l *link) chunk() int {
	const shortest, longest = 64 << 10, 4 << 20
	return int(min(max(l.bandwidth/1000, shortest), longest))
}

// forever is when the slowest link is free again, in a hundred and fifty years.
const forever = time.Duration(1 << 62)

// reserve takes n bytes' time of the link, not before from, and returns the end of it.
func (l *link) reserve(from time.Duration, n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := max(from, l.free)
	l.free = start + time.Duration(min(float64(n)/l.bandwidth*float64(time.Second), float64(forever-start)))
	return l.free
}

var epoch = time.Now()

// longAgo is before any instant. A fake clock may be before the epoch.
const longAgo = time.Duration(math.MinInt64)

// now is the monotonic time that all host devices share.
func now() time.Duration { return time.Since(epoch) }

// pauser sleeps on a clock until its device is abandoned.
type pauser struct {
	fake      bool // Config.FakeClock
	abandoned *atomic.Bool
}

// until sleeps until just before due; when exact, it yields in a loop for the rest (about 0.1 ms). Errors: runtime.ErrAbandoned, not
// long after the device is abandoned.
func (p pauser) until(due time.Duration, exact bool) error {
	const (
		glance     = 50 * time.Millisecond   // between two looks at whether it is abandoned
		sleepError = 1500 * time.Microsecond // time.Sleep wakes up late by up to a millisecond
		napError   = 120 * time.Microsecond  // so does nap, by up to this
	)
	for {
		left := due - now()
		switch {
		case p.abandoned.Load():
			return runtime.ErrAbandoned
		case left <= 0:
			return nil
		case p.fake:
			time.Sleep(min(left, glance))
		case left > 2*sleepError:
			time.Sleep(min(left-sleepError, glance))
		case left > napError:
			nap(left - napError)
		case !exact:
			return nil
		default:
			goruntime.Gosched()
		}
	}
}
