package host

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"
)

// link is one direction of a connection with a stated bandwidth. Copies reserve it chunk by chunk, so that copies
// that run at the same time share it fairly and together never exceed it. A nil link is as fast as memory.
type link struct {
	bandwidth float64 // bytes/s

	mu   sync.Mutex
	free time.Duration // when the last reservation ends
	late time.Duration // how long after that its copy had woken up; 0: not yet
}

func newLink(bandwidth float64) *link {
	if bandwidth == 0 {
		return nil
	}
	return &link{bandwidth: bandwidth}
}

// copy copies src to dst and returns when a link of this bandwidth would have delivered the last byte; false when it is abandoned
// before. Lateness of one chunk is made up by the next ones, and that of a copy by the one behind it, so it does not add up. Where memory
// is slower than the link, memory counts.
func (l *link) copy(dst, src []byte, abandoned *atomic.Bool) bool {
	if l == nil {
		copy(dst, src)
		return true
	}
	due := l.begin(now())
	for len(src) > 0 {
		n := min(l.chunk(), len(src))
		due = l.reserve(due, n)
		copy(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
		if !pauseUntil(due, len(src) == 0, abandoned) {
			return false
		}
	}
	l.end(due, now())
	return true
}

// begin returns from when on a copy that begins now may have the link: a copy right behind one that woke up late would have begun as much
// earlier.
func (l *link) begin(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := l.late
	l.late = 0
	if now-l.free > 2*late { // it waited for something else
		return now
	}
	return now - late
}

// end says that a copy that was due has woken up.
func (l *link) end(due, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if due == l.free { // nobody else has reserved it since
		l.late = max(0, now-due)
	}
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

// now is the monotonic time that all host devices share.
func now() time.Duration { return time.Since(epoch) }

// pauseUntil sleeps until just before due; when exact, it yields in a loop for the rest (about 0.1 ms). It returns false, and not
// long after, when it is abandoned.
func pauseUntil(due time.Duration, exact bool, abandoned *atomic.Bool) bool {
	const (
		glance     = 50 * time.Millisecond   // between two looks at whether it is abandoned
		sleepError = 1500 * time.Microsecond // time.Sleep wakes up late by up to a millisecond
		napError   = 120 * time.Microsecond  // so does nap, by up to this
	)
	for {
		left := due - now()
		switch {
		case abandoned.Load():
			return false
		case left > 2*sleepError:
			time.Sleep(min(left-sleepError, glance))
		case left > napError:
			nap(left - napError)
		case left <= 0 || !exact:
			return true
		default:
			goruntime.Gosched()
		}
	}
}
