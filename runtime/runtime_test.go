package runtime_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"plimsoll/runtime"
)

func TestSpansOverlapWhenTheyShareAByte(t *testing.T) {
	t.Parallel()
	s := func(offset, bytes int64) runtime.Span { return runtime.Span{Offset: offset, Bytes: bytes} }
	for _, c := range []struct {
		a, b runtime.Span
		want bool
	}{
		{s(0, 10), s(10, 10), false},
		{s(0, 11), s(10, 10), true},
		{s(0, 30), s(10, 10), true},
		{s(5, 5), s(5, 5), true},
		{s(0, 30), s(10, 0), false},
		{s(0, 10), runtime.Span{Space: runtime.Host, Bytes: 10}, false},
	} {
		if got := c.a.Overlaps(c.b); got != c.want {
			t.Errorf("%v overlaps %v: %v", c.a, c.b, got)
		}
		if got := c.b.Overlaps(c.a); got != c.want {
			t.Errorf("%v overlaps %v: %v", c.b, c.a, got)
		}
	}
}

// Check must not be fooled by sums that overflow: it agrees with the definition, byte by byte, on small spans, and
// refuses everything huge.
func TestExtentAcceptsExactlyWhatIsInside(t *testing.T) {
	t.Parallel()
	const size = 5
	x := runtime.Extent{Device: "d", Arena: size}
	cases := 0
	for _, offset := range []int64{math.MinInt64, -1, 0, 1, 4, 5, 6, math.MaxInt64} {
		for _, bytes := range []int64{math.MinInt64, -1, 0, 1, 4, 5, 6, math.MaxInt64} {
			cases++
			inside := offset >= 0 && bytes >= 0 && offset <= size && bytes <= size && offset+bytes <= size
			if err := x.Check("op", runtime.Span{Offset: offset, Bytes: bytes}); (err == nil) != inside {
				t.Errorf("offset %d, %d bytes: %v", offset, bytes, err)
			}
		}
	}
	if cases != 64 {
		t.Errorf("%d cases", cases)
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	t.Parallel()
	cause := errors.New("boom")
	x := runtime.Extent{Device: "cpu", Arena: 100, Host: 10}
	arena, host := runtime.Span{Bytes: 100}, runtime.Span{Space: runtime.Host, Bytes: 10}
	for want, err := range map[string]error{
		"cpu: out of memory (host): asked for 2 B, the device has 1 B": &runtime.OutOfMemoryError{
			Device: "cpu", Space: runtime.Host, Asked: 2, Limit: 1},
		"cpu: stream s: conv: boom": &runtime.StreamError{Device: "cpu", Stream: "s", Op: "conv", Err: cause},
		"cpu: read: arena[90:110]: out of bounds: 100 bytes of it are reserved": x.Check("read", runtime.Span{Offset: 90, Bytes: 20}),
		"cpu: read: space(9)[0:1]: there is no such space":                      x.Check("read", runtime.Span{Space: 9, Bytes: 1}),
		"cpu: read: arena[0:100]: is not in the host space":                     x.CheckHost("read", arena),
		"cpu: copy to: host[0:10]: has 10 bytes, the source has 100":            x.CheckCopy(host, arena),
		"cpu: copy to: arena[0:100]: overlaps the source arena[0:100]":          x.CheckCopy(arena, arena),
		"cpu: copy to peer from: host[0:10]: peer copies are between arenas":    x.CheckPeerCopy(x, arena, host),
		"cpu: copy from peer to: arena[0:50]: has 50 bytes, the source has 100": x.CheckPeerCopy(x, runtime.Span{Bytes: 50}, arena),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if !errors.Is(&runtime.StreamError{Err: cause}, cause) {
		t.Error("a StreamError hides its cause")
	}
}

// Fill reaches every byte and no other.
func TestFill(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 1000, 1 << 18, 1<<18 + 1, 1<<19 + 7, 3<<18 + 100_000} {
		b := make([]byte, n+2)
		runtime.Fill(b[1:n+1], 0xA5)
		if bytes.Count(b, []byte{0xA5}) != n || b[0] != 0 || b[n+1] != 0 {
			t.Errorf("%d bytes: %d are filled", n, bytes.Count(b, []byte{0xA5}))
		}
	}
}
