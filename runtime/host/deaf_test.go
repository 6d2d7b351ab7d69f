//go:build !race

// Not with -race: the race detector reports the very races that this test makes.

package host_test

import (
	"testing"

	"plimsoll/runtime"
	"plimsoll/runtime/devicetest"
	"plimsoll/runtime/host"
)

// deaf is a device whose streams do not wait for events.
type deaf struct{ *host.Device }

type deafStream struct{ runtime.Stream }

func (d deaf) NewStream(name string) (runtime.Stream, error) {
	s, err := d.Device.NewStream(name)
	return deafStream{s}, err
}

func (deafStream) Wait(runtime.Event) error { return nil }

// The random programs must notice a device that ignores waits, else their agreement says nothing.
func TestRandomProgramsNoticeMissingWaits(t *testing.T) {
	t.Parallel()
	const programs = 100
	hearing := suite(host.Config{Chaos: 3}, false)
	if n := hearing.CountDifferences(t, programs); n != 0 {
		t.Errorf("%d of %d programs are wrong on a right device", n, programs)
	}
	n := devicetest.Suite{
		Open: func(t testing.TB, n int) []runtime.Device {
			var all []runtime.Device
			for _, d := range hearing.Open(t, n) {
				all = append(all, deaf{d.(*host.Device)})
			}
			return all
		},
		Mix: func(d runtime.Device, dst, src runtime.Span) runtime.Launch {
			return mixLaunch(d.(deaf).Device, dst, src)
		},
	}.CountDifferences(t, programs)
	if n < programs/4 {
		t.Errorf("%d of %d programs are wrong on a device that ignores waits", n, programs)
	}
	t.Logf("%d of %d programs notice", n, programs)
}
