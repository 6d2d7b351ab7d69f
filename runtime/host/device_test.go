package host_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

func arena(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: runtime.Arena, Offset: offset, Bytes: bytes}
}

func hostSpan(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: runtime.Host, Offset: offset, Bytes: bytes}
}

// reserved returns a device of c with n bytes of each space and one stream.
func reserved(t testing.TB, c host.Config, n int64) (*host.Device, runtime.Stream) {
	t.Helper()
	d := device(t, c)
	must(t, d.Reserve(n, n))
	t.Cleanup(func() { _ = d.Close() })
	return d, stream(t, d, "s")
}

func stream(t testing.TB, d runtime.Device, name string) runtime.Stream {
	t.Helper()
	s, err := d.NewStream(name)
	must(t, err)
	return s
}

func event(t testing.TB, d runtime.Device) runtime.Event {
	t.Helper()
	e, err := d.NewEvent()
	must(t, err)
	return e
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
}

func TestBadConfigsAreRefused(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]host.Config{
		"memory is -1 bytes":            {Memory: -1},
		"host memory is -1 bytes":       {HostMemory: -1},
		"queue has -1 places":           {Queue: -1},
		"bandwidth is -1 bytes/s":       {Bandwidth: -1},
		"bandwidth is NaN bytes/s":      {Bandwidth: math.NaN()},
		"peer bandwidth is +Inf bytes/": {PeerBandwidth: math.Inf(1)},
	} {
		c.Name = "odd"
		_, err := host.New(c)
		wantText(t, err, "odd: ", want)
		_, err = host.Split(c, 2)
		wantText(t, err, "odd: ", want)
	}
	for _, n := range []int{0, -1} {
		_, err := host.Split(host.Config{}, n)
		wantText(t, err, "cpu", "want at least 1")
	}
}

func TestSplitSharesTheMemory(t *testing.T) {
	t.Parallel()
	parts, err := host.Split(host.Config{Memory: 1000, HostMemory: 500, Bandwidth: 5}, 4)
	must(t, err)
	for i, d := range parts {
		got := d.Info()
		if got.Name != "cpu*4/"+string(rune('0'+i)) || got.Memory != 250 || got.Bandwidth != 5 || got.Simulated {
			t.Errorf("part %d: %+v", i, got)
		}
		var oom *runtime.OutOfMemoryError
		if err := d.Reserve(1, 126); !errors.As(err, &oom) || oom.Space != runtime.Host || oom.Limit != 125 {
			t.Errorf("part %d: Reserve of too much host memory = %v", i, err)
		}
	}
	if len(parts) != 4 {
		t.Errorf("%d parts", len(parts))
	}
	var oom *runtime.OutOfMemoryError
	if _, err := host.Split(host.Config{Memory: 3, HostMemory: 9}, 4); !errors.As(err, &oom) {
		t.Errorf("3 bytes for 4 devices: %v", err)
	}
}

func TestMemoryDefaultsToWhatIsAvailable(t *testing.T) {
	t.Parallel()
	whole := device(t, host.Config{}).Info().Memory
	if whole < 1<<20 {
		t.Errorf("the arena can have %d bytes only", whole)
	}
	if got := device(t, host.Config{Memory: 77}).Info().Memory; got != 77 {
		t.Errorf("a stated limit of 77 became %d", got)
	}
}

var errInjected = errors.New("injected")

// faulty fails the operation op, the first times times.
func faulty(op string, times int) func(string) error {
	return func(got string) error {
		if got == op && times > 0 {
			times--
			return errInjected
		}
		return nil
	}
}

func TestReserveThatFailsMayBeRepeated(t *testing.T) {
	t.Parallel()
	d := device(t, host.Config{Fault: faulty("reserve", 1)})
	err := d.Reserve(100, 100)
	wantText(t, err, "cpu: reserve: injected")
	if !errors.Is(err, errInjected) {
		t.Errorf("the cause is lost: %v", err)
	}
	must(t, d.Reserve(100, 100))
	must(t, d.Close())
}

func TestCopyThatFailsStopsItsStream(t *testing.T) {
	t.Parallel()
	d, s := reserved(t, host.Config{Fault: faulty("copy", 1)}, 100)
	must(t, s.Copy(arena(8, 16), hostSpan(0, 16)))
	err := s.Synchronize()
	wantText(t, err, "cpu: stream s: copy host[0:16] to arena[8:24]: injected")
	other := stream(t, d, "other")
	must(t, other.Copy(arena(8, 16), hostSpan(0, 16)))
	must(t, other.Synchronize())
}

func TestPeerCopyThatFailsNamesBothDevices(t *testing.T) {
	t.Parallel()
	parts, err := host.Split(host.Config{Memory: 200, HostMemory: 200, Fault: faulty("copy to peer", 1)}, 2)
	must(t, err)
	for _, d := range parts {
		must(t, d.Reserve(100, 0))
	}
	s := stream(t, parts[0], "s")
	must(t, s.CopyPeer(parts[1], arena(8, 16), arena(0, 16)))
	wantText(t, s.Synchronize(), "cpu*2/0: stream s: copy arena[0:16] to arena[8:24] of cpu*2/1: injected")
	must(t, parts[1].Close()) // the copy that failed does not keep it open
	must(t, parts[0].Close())
}

func TestPanicOfALaunchIsItsStreamsError(t *testing.T) {
	t.Parallel()
	_, s := reserved(t, host.Config{}, 100)
	must(t, s.Launch(host.Func{Name: "conv", Do: func() error {
		var empty []int
		empty[len(empty)]++
		return nil
	}}))
	err := s.Synchronize()
	wantText(t, err, "cpu: stream s: conv: BUG: panic: runtime error: index out of range", "device_test.go")
}

// The error of a stream that waited for a stopped one tells the whole way.
func TestFailureSaysWhereItCameFrom(t *testing.T) {
	t.Parallel()
	d, s := reserved(t, host.Config{}, 100)
	next, e := stream(t, d, "next"), event(t, d)
	must(t, s.Launch(host.Func{Name: "conv", Do: func() error { return errInjected }}))
	_ = s.Record(e)
	_ = next.Wait(e)
	wantText(t, next.Synchronize(), "cpu: stream next: wait for command 2 of cpu, stream s: cpu: stream s: conv: injected")
}

func TestDumpSaysWhoWaitsForWhat(t *testing.T) {
	t.Parallel()
	d, s := reserved(t, host.Config{}, 100)
	peer, _ := reserved(t, host.Config{Name: "peer"}, 100)
	next, e := stream(t, d, "next"), event(t, d)
	gate, open := gateLaunch(d)
	started := make(chan struct{})
	must(t, s.Launch(host.Func{Name: "first", Do: func() error {
		close(started)
		return nil
	}}))
	must(t, s.Launch(gate))
	must(t, s.Record(e))
	must(t, s.CopyPeer(peer, arena(0, 8), arena(0, 8)))
	must(t, next.Wait(e))
	<-started
	for !strings.Contains(d.Dump(), "s: 1 of 4 done") {
		time.Sleep(time.Millisecond)
	}
	want := "cpu: 2 streams\n  s: 1 of 4 done, now gate\n  next: 0 of 1 done, now wait for command 3 of cpu, stream s\n"
	if got := d.Dump(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := peer.Dump(); !strings.Contains(got, "copies of peers into the arena, pending: 1") {
		t.Errorf("the peer does not say that a copy is pending:\n%s", got)
	}
	open()
	must(t, next.Synchronize())
}

// Issuing blocks at a full queue, and goes on, or says that the device is closed.
func TestFullQueueHoldsTheIssuer(t *testing.T) {
	t.Parallel()
	const queue, launches = 2, 100
	d, s := reserved(t, host.Config{Queue: queue}, 100)
	gate, open := gateLaunch(d)
	ran := 0
	count := host.Func{Name: "count", Do: func() error {
		ran++
		return nil
	}}
	must(t, s.Launch(gate))
	done := make(chan error)
	go func() {
		var err error
		for range launches {
			err = errors.Join(err, s.Launch(count))
		}
		done <- err
	}()
	for !strings.Contains(d.Dump(), "s: 0 of 2 done, now gate") {
		time.Sleep(time.Millisecond)
	}
	open()
	must(t, <-done)
	must(t, s.Synchronize())
	if ran != launches {
		t.Errorf("%d of %d ran", ran, launches)
	}
}

func TestBlockedIssuerLearnsOfClose(t *testing.T) {
	t.Parallel()
	d, s := reserved(t, host.Config{Queue: 1}, 100)
	gate, open := gateLaunch(d)
	must(t, s.Launch(gate))
	done := make(chan error)
	go func() {
		for {
			if err := s.Launch(host.Func{Name: "nothing", Do: func() error { return nil }}); err != nil {
				done <- err
				return
			}
		}
	}()
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	if err := <-done; !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("got %v", err)
	}
	open()
	must(t, <-closed)
}

func TestBytesEndWithTheSpan(t *testing.T) {
	t.Parallel()
	d, _ := reserved(t, host.Config{}, 100)
	b, err := d.Bytes(arena(10, 5))
	must(t, err)
	if len(b) != 5 || cap(b) != 5 {
		t.Errorf("%d bytes, capacity %d", len(b), cap(b))
	}
	if _, err := d.Bytes(arena(96, 5)); err == nil {
		t.Error("a span out of bounds was accepted")
	}
	if _, err := d.Bytes(hostSpan(0, 100)); err != nil {
		t.Error(err)
	}
}
