package null_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/devicetest"
	"plimsoll/runtime/null"
)

func TestConformance(t *testing.T) {
	// Serial: it counts allocations.
	got := devicetest.Run(t, devicetest.Suite{
		Open: func(t testing.TB, n int) []runtime.Device {
			var all []runtime.Device
			for range n {
				all = append(all, device(t, null.Config{Memory: 1 << 30, Bandwidth: 1e9}))
			}
			return all
		},
		Mix: func(runtime.Device, runtime.Span, runtime.Span) runtime.Launch {
			return null.Cost{Name: "mix", Seconds: 1e-3}
		},
	})
	if want := (devicetest.Report{Ran: 15, Skipped: 29}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func device(t testing.TB, c null.Config) *null.Device {
	t.Helper()
	d, err := null.New(c)
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a device with streams and events, which start at time 0.
type rig struct {
	testing.TB
	*null.Device
	start runtime.Event
}

func newRig(t testing.TB, c null.Config) *rig {
	r := &rig{TB: t, Device: device(t, c)}
	must(t, r.Reserve(1000, 1000))
	r.start = r.mark(r.stream("start"))
	return r
}

func (r *rig) stream(name string) runtime.Stream {
	r.Helper()
	s, err := r.NewStream(name)
	must(r, err)
	return s
}

// mark records a new event.
func (r *rig) mark(s runtime.Stream) runtime.Event {
	r.Helper()
	e, err := r.NewEvent()
	must(r, err)
	must(r, s.Record(e))
	return e
}

// wantAt asserts the simulated time of a stream.
func (r *rig) wantAt(s runtime.Stream, want time.Duration) {
	r.Helper()
	got, err := r.mark(s).Since(r.start)
	must(r, err)
	if got != want {
		r.Errorf("%s is at %v, want %v", s.Name(), got, want)
	}
}

func seconds(n float64) runtime.Launch { return null.Cost{Name: "work", Seconds: n} }

func arena(bytes int64) runtime.Span { return runtime.Span{Space: runtime.Arena, Bytes: bytes} }

func host(bytes int64) runtime.Span { return runtime.Span{Space: runtime.Host, Bytes: bytes} }

func TestLaunchesOfAStreamAddUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, null.Config{})
	s, other := r.stream("s"), r.stream("other")
	must(t, s.Launch(seconds(2)))
	must(t, s.Launch(seconds(3600)))
	must(t, other.Launch(seconds(1)))
	r.wantAt(s, 3602*time.Second)
	r.wantAt(other, time.Second)
}

func TestWaitTakesTheLaterTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, null.Config{})
	s, other := r.stream("s"), r.stream("other")
	must(t, s.Launch(seconds(2)))
	must(t, other.Launch(seconds(5)))
	early, late := r.mark(s), r.mark(other)
	must(t, other.Wait(early))
	r.wantAt(other, 5*time.Second)
	must(t, s.Wait(late))
	r.wantAt(s, 5*time.Second)
}

func TestCopiesTakeBytesOverBandwidth(t *testing.T) {
	t.Parallel()
	r := newRig(t, null.Config{Bandwidth: 100, PeerBandwidth: 10})
	peer := newRig(t, null.Config{Name: "peer"})
	in, in2, out, to := r.stream("in"), r.stream("in2"), r.stream("out"), r.stream("to")
	must(t, in.Copy(arena(500), host(500)))
	must(t, in2.Copy(arena(200), host(200)))
	must(t, out.Copy(host(300), arena(300)))
	must(t, to.CopyPeer(peer.Device, arena(40), arena(40)))
	r.wantAt(in, 5*time.Second)
	r.wantAt(in2, 7*time.Second) // shares the direction with in
	r.wantAt(out, 3*time.Second)
	r.wantAt(to, 4*time.Second)
	within := runtime.Span{Space: runtime.Arena, Offset: 500, Bytes: 500}
	must(t, out.Copy(within, arena(500)))
	r.wantAt(out, 3*time.Second)
}

func TestWithoutBandwidthCopiesTakeNoTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, null.Config{})
	s := r.stream("s")
	must(t, s.Copy(arena(1000), host(1000)))
	r.wantAt(s, 0)
}

func TestDevicesShareOneTime(t *testing.T) {
	t.Parallel()
	a, b := newRig(t, null.Config{Name: "a"}), newRig(t, null.Config{Name: "b"})
	s, far := a.stream("s"), b.stream("far")
	must(t, s.Launch(seconds(9)))
	must(t, far.Wait(a.mark(s)))
	b.wantAt(far, 9*time.Second)
}

func TestBadCostsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, null.Config{})
	s := r.stream("s")
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		if err := s.Launch(seconds(bad)); err == nil {
			t.Errorf("a launch of %v seconds was accepted", bad)
		}
		for _, c := range []null.Config{{Bandwidth: bad}, {PeerBandwidth: bad}, {Memory: -1}} {
			if _, err := null.New(c); err == nil {
				t.Errorf("%+v was accepted", c)
			}
		}
	}
	r.wantAt(s, 0)
}

func TestItSaysThatItIsSimulated(t *testing.T) {
	t.Parallel()
	i := device(t, null.Config{}).Info()
	if !i.Simulated || i.Name != "null" || i.Kind != "null" || i.Memory != math.MaxInt64 {
		t.Errorf("%+v", i)
	}
}

func TestHostBytesAreScratch(t *testing.T) {
	t.Parallel()
	r := newRig(t, null.Config{})
	b, err := r.HostBytes(host(10))
	must(t, err)
	b[0] = 1
	b, err = r.HostBytes(host(10))
	must(t, err)
	if b[0] != 0 {
		t.Error("something was kept")
	}
}

func TestClosedTwice(t *testing.T) {
	t.Parallel()
	d := device(t, null.Config{})
	must(t, d.Close())
	if err := d.Close(); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
