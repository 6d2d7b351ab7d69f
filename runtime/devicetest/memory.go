package devicetest

import (
	"bytes"
	"errors"
	"math"

	"plimsoll/runtime"
)

var memoryCases = []testCase{
	{"the device describes itself", 0, 1, describesItself},
	{"reserving more than the device has is refused and leaves it as it was", 0, 1, reserveTooMuch},
	{"reserving twice is refused", 0, 1, reserveTwice},
	{"nothing works before Reserve", 0, 1, beforeReserve},
	{"nothing works after Close", 0, 2, afterClose},
	{"spans are checked and the stream lives on", 0, 2, badSpans},
	{"host bytes are of the host space and within it", 0, 1, badHostBytes},
	{"empty spans are fine", 0, 2, emptySpans},
	{"memory is zero at first", needData, 1, zeroAtFirst},
}

func describesItself(k *kit) {
	i := k.devices[0].Info()
	if i.Name == "" || i.Kind == "" || i.Model == "" || i.Memory < space || i.Bandwidth < 0 {
		k.Errorf("incomplete: %+v", i)
	}
}

func reserveTooMuch(k *kit) {
	d := k.devices[0]
	limit := d.Info().Memory
	var oom *runtime.OutOfMemoryError
	if err := d.Reserve(limit+1, 0); !errors.As(err, &oom) {
		k.Fatalf("Reserve(limit+1) = %v, want an OutOfMemoryError", err)
	}
	want := runtime.OutOfMemoryError{Device: d.Info().Name, Space: runtime.Arena, Asked: limit + 1, Limit: limit}
	if *oom != want {
		k.Errorf("got %+v, want %+v", *oom, want)
	}
	for _, sizes := range [][2]int64{{-1, 0}, {0, -1}} {
		if d.Reserve(sizes[0], sizes[1]) == nil {
			k.Errorf("Reserve(%d, %d) was accepted", sizes[0], sizes[1])
		}
	}
	k.must(d.Reserve(space, space))
	_ = k.stream(d, "s")
}

func reserveTwice(k *kit) {
	k.wantIs(k.device().Reserve(space, space), runtime.ErrReserved, "Reserve")
}

func beforeReserve(k *kit) {
	d := k.devices[0]
	_, err := d.NewStream("s")
	k.wantIs(err, runtime.ErrNotReserved, "NewStream")
	_, err = d.NewEvent()
	k.wantIs(err, runtime.ErrNotReserved, "NewEvent")
	_, err = d.HostBytes(host(0, 1))
	k.wantIs(err, runtime.ErrNotReserved, "HostBytes")
}

func afterClose(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, e, recorded := k.stream(d, "s"), k.event(d), k.event(d)
	outside := k.stream(other, "outside")
	launch := k.suite.Mix(d, arena(0, 8), arena(8, 8))
	k.must(s.Record(recorded))
	k.must(d.Close())

	_, err := d.NewStream("t")
	k.wantIs(err, runtime.ErrClosed, "NewStream")
	_, err = d.NewEvent()
	k.wantIs(err, runtime.ErrClosed, "NewEvent")
	_, err = d.HostBytes(host(0, 1))
	k.wantIs(err, runtime.ErrClosed, "HostBytes")
	_, err = recorded.Since(recorded)
	k.wantIs(err, runtime.ErrClosed, "Since")
	k.wantIs(d.Reserve(1, 1), runtime.ErrClosed, "Reserve")
	k.wantIs(d.Close(), runtime.ErrClosed, "Close")
	k.wantIs(s.Launch(launch), runtime.ErrClosed, "Launch")
	k.wantIs(s.Copy(arena(0, 8), host(0, 8)), runtime.ErrClosed, "Copy")
	k.wantIs(s.CopyPeer(other, arena(0, 8), arena(0, 8)), runtime.ErrClosed, "CopyPeer")
	k.wantIs(s.Record(e), runtime.ErrClosed, "Record")
	k.wantIs(s.Wait(e), runtime.ErrClosed, "Wait")
	k.wantIs(s.Synchronize(), runtime.ErrClosed, "Stream.Synchronize")
	k.wantIs(e.Synchronize(), runtime.ErrClosed, "Event.Synchronize")
	k.wantIs(outside.CopyPeer(d, arena(0, 8), arena(0, 8)), runtime.ErrClosed, "CopyPeer to it")
	k.must(outside.Synchronize())
}

func badSpans(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s := k.stream(d, "s")
	good := arena(0, 16)
	for _, bad := range []runtime.Span{
		arena(-1, 16), arena(0, -16), arena(space-15, 16), arena(space+1, 0), arena(math.MaxInt64, 16),
		arena(16, math.MaxInt64), {Space: 7, Bytes: 16},
		arena(16, 17), // its length differs
		arena(8, 16),  // overlaps the good one
	} {
		k.wantSpanError(s.Copy(good, bad), "copy from", bad)
		k.wantSpanError(s.Copy(bad, good), "copy to", bad)
		if bad == arena(8, 16) {
			continue // on two devices it does not overlap
		}
		k.wantSpanError(s.CopyPeer(other, good, bad), "copy to peer from", bad)
		k.wantSpanError(s.CopyPeer(other, bad, good), "copy to peer to", bad)
	}
	k.wantSpanError(s.CopyPeer(other, good, host(0, 16)), "copy to peer from", host(0, 16))
	k.wantSpanError(s.CopyPeer(other, host(0, 16), good), "copy to peer to", host(0, 16))
	k.wantSpanError(s.CopyPeer(d, arena(8, 16), good), "copy to itself", good)
	k.must(s.Copy(good, host(0, 16)))
	k.must(s.Synchronize())
}

func (k *kit) wantSpanError(err error, call string, s runtime.Span) {
	k.Helper()
	var span *runtime.SpanError
	if !errors.As(err, &span) || span.Device == "" || span.Op == "" || span.Reason == "" {
		k.Errorf("%s %v: got error %v, want a complete SpanError", call, s, err)
	}
}

func badHostBytes(k *kit) {
	d := k.device()
	for _, bad := range []runtime.Span{arena(0, 8), host(-1, 8), host(space-7, 8), host(0, -1)} {
		_, err := d.HostBytes(bad)
		k.wantSpanError(err, "HostBytes", bad)
	}
	for _, good := range []runtime.Span{host(0, space), host(3, 5), host(space, 0)} {
		b, err := d.HostBytes(good)
		k.must(err)
		if int64(len(b)) != good.Bytes {
			k.Errorf("HostBytes(%v) has %d bytes", good, len(b))
		}
	}
}

func emptySpans(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s := k.stream(d, "s")
	k.must(s.Copy(arena(space, 0), host(3, 0)))
	k.must(s.Copy(arena(5, 0), arena(5, 0)))
	k.must(s.CopyPeer(other, arena(0, 0), arena(space, 0)))
	k.must(s.Synchronize())
}

func zeroAtFirst(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	b, err := d.HostBytes(host(0, space))
	k.must(err)
	zero := make([]byte, space)
	if !bytes.Equal(b, zero) {
		k.Error("the host space is not zero")
	}
	copy(b, pattern(space, 1))
	if !bytes.Equal(k.read(d, s, arena(0, space)), zero) {
		k.Error("the arena is not zero")
	}
}
