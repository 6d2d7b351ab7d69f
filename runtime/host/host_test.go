package host_test

import (
	"errors"
	"testing"

	"plimsoll/runtime"
	"plimsoll/runtime/devicetest"
	"plimsoll/runtime/host"
)

// suite tests devices of a config.
func suite(c host.Config, split bool) devicetest.Suite {
	c.Memory, c.HostMemory = 8<<20, 8<<20
	return devicetest.Suite{
		Open: func(t testing.TB, n int) []runtime.Device { return open(t, c, n, split) },
		Mix:  mixLaunch,
		Gate: gateLaunch,
		Fail: func(_ runtime.Device, cause error) runtime.Launch {
			return host.Func{Name: "bad kernel", Do: func() error { return cause }}
		},
	}
}

func open(t testing.TB, c host.Config, n int, split bool) []runtime.Device {
	var devices []runtime.Device
	if split {
		parts, err := host.Split(c, n)
		must(t, err)
		for _, d := range parts {
			devices = append(devices, d)
		}
		return devices
	}
	for range n {
		devices = append(devices, device(t, c))
	}
	return devices
}

func device(t testing.TB, c host.Config) *host.Device {
	t.Helper()
	d, err := host.New(c)
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mixLaunch(d runtime.Device, dst, src runtime.Span) runtime.Launch {
	to, errTo := d.(*host.Device).Bytes(dst)
	from, errFrom := d.(*host.Device).Bytes(src)
	err := errors.Join(errTo, errFrom)
	return host.Func{Name: "mix", Do: func() error {
		for i := range to {
			to[i] = 31*to[i] + from[i]
		}
		return err
	}}
}

func gateLaunch(runtime.Device) (runtime.Launch, func()) {
	gate := make(chan struct{})
	held := host.Func{Name: "gate", Do: func() error {
		<-gate
		return nil
	}}
	return held, func() { close(gate) }
}

// every is the number of cases: a host device can show all of them.
var every = devicetest.Report{Ran: 44}

func TestConformance(t *testing.T) {
	// Serial: it counts allocations.
	for _, c := range []struct {
		name   string
		config host.Config
		split  bool
	}{
		{"plain", host.Config{}, false},
		{"split", host.Config{}, true},
		{"chaos", host.Config{Chaos: 1}, true},
		{"throttled", host.Config{Bandwidth: 4e9, PeerBandwidth: 3e9}, false},
		{"short queue and chaos", host.Config{Queue: 8, Chaos: 2}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := devicetest.Run(t, suite(c.config, c.split)); got != every {
				t.Errorf("got %+v, want %+v", got, every)
			}
		})
	}
}

func FuzzPrograms(f *testing.F) {
	f.Add(uint64(0), uint64(1), true)
	f.Fuzz(func(t *testing.T, seed, chaos uint64, two bool) {
		devices := 1
		if two {
			devices = 2
		}
		suite(host.Config{Chaos: chaos}, true).CheckProgram(t, seed, devices)
	})
}
