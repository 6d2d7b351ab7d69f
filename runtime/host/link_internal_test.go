package host

import (
	"testing"
	"time"

	"plimsoll/runtime"
)

func TestLinkReservationsFollowEachOther(t *testing.T) {
	t.Parallel()
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

func TestEachDirectionHasItsOwnLink(t *testing.T) {
	t.Parallel()
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
