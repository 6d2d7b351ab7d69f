package host_test

import (
	"context"
	"errors"
	"testing"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// A device that is abandoned gives up copies that wait for a link which would take centuries, and skips the commands behind them. It wakes
// everyone who waits for it, also on a peer, and can be closed.
func TestAbandonedDevicesGiveUp(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	for name, bandwidth := range map[string]float64{"slow": 1e-3, "the slowest": 5e-324} {
		ctx, stop := context.WithCancel(t.Context())
		d, s := reserved(t, host.Config{Bandwidth: bandwidth, PeerBandwidth: bandwidth, Until: ctx}, 4*n)
		peer, theirs := reserved(t, host.Config{}, 4*n)
		behind := stream(t, d, "behind")
		ev := event(t, d)
		must(t, s.Copy(arena(0, n), hostSpan(0, n)))
		must(t, s.Record(ev))
		must(t, behind.Wait(ev))
		must(t, theirs.Wait(ev))
		other := stream(t, d, "to peer")
		must(t, other.CopyPeer(peer, arena(n, n), arena(n, n)))
		stop()
		for _, s := range []runtime.Stream{s, behind, other, theirs} {
			if err := s.Synchronize(); !errors.Is(err, runtime.ErrAbandoned) {
				t.Errorf("%s: stream %s: %v", name, s.Name(), err)
			}
		}
		if err := errors.Join(s.Copy(arena(0, 8), hostSpan(0, 8)), s.Synchronize()); !errors.Is(err, runtime.ErrAbandoned) {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}
