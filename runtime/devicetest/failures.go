package devicetest

import (
	"errors"

	"plimsoll/runtime"
)

var failureCases = []testCase{
	{"a failing launch stops its stream and is reported", needFail, 1, failureIsReported},
	{"work behind a failure does not run", needData | needFail, 1, failureStops},
	{"a failure reaches the streams that wait for it and no other", needFail, 2, failureSpreads},
	{"events before a failure are complete, events behind it failed", needFail, 1, failureEvents},
	{"a failed device can be closed", needFail, 2, failureCloses},
}

var errCause = errors.New("the cause")

func (k *kit) fail(d runtime.Device) runtime.Launch { return k.suite.Fail(d, errCause) }

func failureIsReported(k *kit) {
	d := k.device()
	s := k.stream(d, "compute")
	bad := k.fail(d)
	k.must(s.Launch(bad))
	err := s.Synchronize()
	var failed *runtime.StreamError
	if !errors.As(err, &failed) {
		k.Fatalf("Synchronize = %v, want a StreamError", err)
	}
	if failed.Device != d.Info().Name || failed.Stream != "compute" || failed.Op != bad.Kernel() {
		k.Errorf("it does not say where: %+v", *failed)
	}
	k.wantIs(err, errCause, "Synchronize")
	k.wantIs(s.Synchronize(), errCause, "Synchronize again")
	k.wantIs(s.Launch(bad), errCause, "Launch")
	k.wantIs(s.Copy(arena(0, 8), host(0, 8)), errCause, "Copy")
}

func failureStops(k *kit) {
	d := k.device()
	s, t := k.stream(d, "s"), k.stream(d, "t")
	want := pattern(100, 1)
	k.write(d, t, arena(0, 100), want)
	k.must(s.Launch(k.fail(d)))
	_ = s.Copy(arena(0, 100), arena(200, 100))                   // refused or skipped
	_ = s.Launch(k.suite.Mix(d, arena(0, 100), arena(200, 100))) // likewise
	k.wantIs(s.Synchronize(), errCause, "Synchronize")
	k.wantBytes(d, t, arena(0, 100), want)
}

func failureSpreads(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, t, u, far := k.stream(d, "s"), k.stream(d, "t"), k.stream(d, "u"), k.stream(other, "far")
	e, f := k.event(d), k.event(d)
	k.must(s.Launch(k.fail(d)))
	_ = s.Record(e) // fails when the device knows by now
	_ = t.Wait(e)
	_ = t.Record(f)
	_ = far.Wait(f)
	for _, stopped := range []runtime.Stream{s, t, far} {
		k.wantIs(stopped.Synchronize(), errCause, stopped.Name())
	}
	k.must(u.Launch(k.suite.Mix(d, arena(0, 8), arena(8, 8))))
	k.soon("the stream that waits for nothing", u.Synchronize)
}

func failureEvents(k *kit) {
	d := k.device()
	s, t, before, behind := k.stream(d, "s"), k.stream(d, "t"), k.event(d), k.event(d)
	k.must(s.Record(before))
	k.must(s.Launch(k.fail(d)))
	_ = s.Record(behind)
	k.must(before.Synchronize())
	k.must(t.Wait(before))
	k.must(t.Synchronize())
	k.wantIs(behind.Synchronize(), errCause, "Synchronize of the event behind")
	_, err := behind.Since(before)
	k.wantIs(err, errCause, "Since of the event behind")
}

func failureCloses(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s := k.stream(d, "s")
	k.must(s.Launch(k.fail(d)))
	_ = s.CopyPeer(other, arena(0, 8), arena(0, 8)) // skipped, and must not keep the peer open
	k.soon("Close", d.Close)
	k.soon("Close of the peer", other.Close)
}
