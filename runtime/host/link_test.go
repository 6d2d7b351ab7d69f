package host_test

import (
	"fmt"
	"testing"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// A throttled copy may be late on a busy machine; early it must never be.
func TestThrottledCopiesAreNeverEarly(t *testing.T) {
	t.Parallel()
	const n, bandwidth = 3_000_000, 500e6
	least := time.Duration(n / bandwidth * 1e9)
	// Each stream has its own part of the memory, at offset at.
	toDevice := func(s runtime.Stream, _ runtime.Device, at int64) error { return s.Copy(arena(at, n), hostSpan(at, n)) }
	toHost := func(s runtime.Stream, _ runtime.Device, at int64) error { return s.Copy(hostSpan(at, n), arena(at, n)) }
	toPeer := func(s runtime.Stream, peer runtime.Device, at int64) error {
		return s.CopyPeer(peer, arena(at, n), arena(at, n))
	}
	for _, c := range []struct {
		name    string
		copy    func(s runtime.Stream, peer runtime.Device, at int64) error
		streams int
	}{
		{"to the device", toDevice, 1},
		{"to the host", toHost, 1},
		{"to the peer", toPeer, 1},
		{"two streams share one direction", toDevice, 2},
		{"two streams share the way to a peer", toPeer, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := host.Config{Bandwidth: bandwidth, PeerBandwidth: bandwidth}
			d, s := reserved(t, config, 2*n)
			peer, _ := reserved(t, config, 2*n)
			streams := []runtime.Stream{s, stream(t, d, "second")}[:c.streams]
			start := time.Now()
			for i, s := range streams {
				must(t, c.copy(s, peer, int64(i)*n))
			}
			for _, s := range streams {
				must(t, s.Synchronize())
			}
			if took, least := time.Since(start), least*time.Duration(c.streams); took < least {
				t.Errorf("took %v, want at least %v", took, least)
			}
		})
	}
}

// BenchmarkThrottledCopy reports how much longer throttled copies take than they should, by the device's own events.
func BenchmarkThrottledCopy(b *testing.B) {
	for _, bandwidth := range []float64{200e6, 1e9, 3e9} {
		for _, micros := range []float64{100, 300, 1000, 10_000, 100_000} {
			n := int64(bandwidth * micros / 1e6)
			b.Run(fmt.Sprintf("%.1fGBps/%.0fus", bandwidth/1e9, micros), func(b *testing.B) {
				d, s := reserved(b, host.Config{Bandwidth: bandwidth}, n)
				before, after := event(b, d), event(b, d)
				must(b, s.Copy(hostSpan(0, n), arena(0, n))) // both copies touch the pages
				must(b, s.Copy(arena(0, n), hostSpan(0, n)))
				var took time.Duration
				for b.Loop() {
					must(b, s.Record(before))
					must(b, s.Copy(arena(0, n), hostSpan(0, n)))
					must(b, s.Record(after))
					must(b, s.Synchronize())
					elapsed, err := after.Since(before)
					must(b, err)
					took += elapsed
				}
				want := micros / 1e6 * float64(b.N)
				b.ReportMetric(100*(took.Seconds()/want-1), "%late")
			})
		}
	}
}

// BenchmarkLaunch is the cost of issuing and running an empty launch.
func BenchmarkLaunch(b *testing.B) {
	_, s := reserved(b, host.Config{}, 8)
	var l runtime.Launch = host.Func{Name: "empty", Do: func() error { return nil }}
	b.ReportAllocs()
	for b.Loop() {
		must(b, s.Launch(l))
	}
	must(b, s.Synchronize())
}

// BenchmarkHandover is the cost of passing work to another stream and back by events.
func BenchmarkHandover(b *testing.B) {
	d, s := reserved(b, host.Config{}, 8)
	t, there, back := stream(b, d, "t"), event(b, d), event(b, d)
	b.ReportAllocs()
	for b.Loop() {
		must(b, s.Record(there))
		must(b, t.Wait(there))
		must(b, t.Record(back))
		must(b, s.Wait(back))
	}
	must(b, s.Synchronize())
}
