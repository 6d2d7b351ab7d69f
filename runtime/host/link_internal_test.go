package host

import (
	"testing"
	"time"

	"plimsoll/runtime"
)

func TestLinkReservationsFollowEachOther(t *testing.T) {
	l := newLink(1000)
	for _, c := range []struct {
		from  time.Duration
		bytes int
		want  time.Duration
	}{
		{2 * time.Second, 1000, 3 * time.Second},
		{2 * time.Second, 500, 3500 * time.Millisecond}, // taken: behind the first
		{9 * time.Second, 1000, 10 * time.Second},       // free
		{0, 1, 10*time.Second + time.Millisecond},
	} {
		if got := l.reserve(c.from, c.bytes); got != c.want {
			t.Errorf("%d bytes from %v: until %v, want %v", c.bytes, c.from, got, c.want)
		}
	}
}

// What a copy was late the one right behind it gets back, once; what comes later, or after others have reserved the link, does not.
func TestLatenessIsMadeUpOnce(t *testing.T) {
	const ms = time.Millisecond
	l := newLink(1000)
	if got := l.begin(10 * ms); got != 10*ms {
		t.Errorf("the first copy begins at %v", got)
	}
	due := l.reserve(10*ms, 10) // until 20 ms
	l.end(due, 23*ms)
	if got := l.begin(24 * ms); got != 21*ms {
		t.Errorf("right behind one that was 3 ms late: from %v, want 21 ms", got)
	}
	if got := l.begin(24 * ms); got != 24*ms {
		t.Errorf("lateness is made up twice: from %v", got)
	}
	l.end(due, 23*ms)
	if got := l.begin(27 * ms); got != 27*ms {
		t.Errorf("after a pause: from %v", got)
	}
	l.reserve(20*ms, 5)
	l.end(due, 30*ms)
	if got := l.begin(31 * ms); got != 31*ms {
		t.Errorf("another copy has reserved the link since: from %v", got)
	}
}

func TestEachDirectionHasItsOwnLink(t *testing.T) {
	c := Config{Memory: 8, HostMemory: 8, Bandwidth: 1, PeerBandwidth: 1}
	parts, err := Split(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	d, peer := parts[0], parts[1]
	links := map[*link]bool{
		d.linkBetween(runtime.Arena, runtime.Host): true,
		d.linkBetween(runtime.Host, runtime.Arena): true,
		d.linkTo(peer): true,
		peer.linkTo(d): true,
	}
	if len(links) != 4 || links[nil] {
		t.Errorf("some directions share a link, or have none: %v", links)
	}
	if first, second := d.linkTo(peer), d.linkTo(peer); first != second {
		t.Error("copies to one peer do not share a link")
	}
	if d.linkTo(d) != nil || d.linkBetween(runtime.Arena, runtime.Arena) != nil {
		t.Error("copies within the arena are throttled")
	}
}
