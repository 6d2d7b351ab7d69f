//go:build cuda && linux && amd64

package cuda_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
	cpu "plimsoll/runtime/host"
)

// Host work runs between the copies before it and those after it on its stream, and another stream that waits for an event has both.
func TestHostLaunchesRunInOrder(t *testing.T) {
	needGPUs(t, 1)
	const rounds, bytes = 60, 1 << 10
	d, s := reserved(t, cudatest.Open(t, cuda.Config{Memory: limit})[0])
	other, err := d.NewStream("other")
	must(t, err)
	there, back := event(t, d), event(t, d)
	p, err := d.HostBytes(host(0, bytes))
	must(t, err)
	ran := byte(0)
	add := runtime.Launch(cpu.Func{Name: "add", Do: func() error {
		ran++
		for i := range p {
			p[i] += ran
		}
		return nil
	}})
	want := byte(0)
	for k := range rounds {
		// The other stream copies within the arena, so each round adds to the bytes of the round before.
		must(t, errors.Join(s.Wait(back), s.Copy(host(0, bytes), arena(0, bytes)), s.Launch(add), s.Launch(add)))
		must(t, errors.Join(s.Copy(arena(bytes, bytes), host(0, bytes)), s.Record(there)))
		must(t, errors.Join(other.Wait(there), other.Copy(arena(0, bytes), arena(bytes, bytes)), other.Record(back)))
		want += byte(2*k+1) + byte(2*k+2)
	}
	must(t, other.Copy(host(bytes, bytes), arena(0, bytes)))
	must(t, errors.Join(other.Synchronize(), s.Synchronize()))
	q, err := d.HostBytes(host(bytes, bytes))
	must(t, err)
	for i, x := range q {
		if x != want {
			t.Fatalf("byte %d is %d, not %d", i, x, want)
		}
	}
}

func event(t *testing.T, d runtime.Device) runtime.Event {
	t.Helper()
	e, err := d.NewEvent()
	must(t, err)
	return e
}

// An error and a panic of host work stop its stream with the name of the launch, and everything on the device that may depend on it.
// Launches behind it do not run, nothing waits for them, and the device can be closed.
func TestHostLaunchesThatFail(t *testing.T) {
	wrong := errors.New("no such number")
	for what, fail := range map[string]func() error{
		"no such number":   func() error { return wrong },
		"BUG: panic: lost": func() error { panic("lost") },
	} {
		needGPUs(t, 1)
		d, s := reserved(t, cudatest.Open(t, cuda.Config{Memory: limit})[0])
		behind, err := d.NewStream("behind")
		must(t, err)
		end, calls := event(t, d), 0
		gate := make(chan struct{})
		work := runtime.Launch(cpu.Func{Name: "host update", Do: func() error {
			if calls++; calls < 3 {
				return nil
			}
			<-gate
			return fail()
		}})
		for range 6 {
			must(t, s.Launch(work))
		}
		must(t, errors.Join(s.Record(end), behind.Wait(end), behind.Copy(arena(0, 8), host(0, 8))))
		waited := make(chan error)
		go func() { waited <- end.Synchronize() }()
		time.Sleep(time.Millisecond) // it waits by now, most likely: it fails in any case
		close(gate)
		for _, x := range []struct {
			name string
			err  error
		}{
			{"s", <-waited}, {"s", s.Synchronize()}, {"behind", behind.Synchronize()},
			{"s", end.Synchronize()}, {"s", s.Launch(work)}, {"behind", behind.Wait(end)},
		} {
			var stopped *runtime.StreamError
			if !errors.As(x.err, &stopped) || stopped.Stream != x.name || stopped.Device != "cuda:0" {
				t.Fatalf("%s: %v", x.name, x.err)
			}
			for errors.As(stopped.Err, &stopped) { // the cause
			}
			if stopped.Op != "host update" || stopped.Stream != "s" {
				t.Errorf("cause: %+v", stopped)
			}
			if text := stopped.Err.Error(); len(text) < len(what) || text[:len(what)] != what {
				t.Errorf("%q does not begin with %q", text, what)
			}
		}
		if calls != 3 {
			t.Errorf("%d launches ran", calls)
		}
		must(t, d.Close())
	}
}

// Close waits for host work that is issued.
func TestCloseWaitsForHostLaunches(t *testing.T) {
	needGPUs(t, 1)
	d, s := reserved(t, cudatest.Open(t, cuda.Config{Memory: limit})[0])
	var ran atomic.Int32
	work := runtime.Launch(cpu.Func{Name: "slow", Do: func() error {
		time.Sleep(2 * time.Millisecond)
		ran.Add(1)
		return nil
	}})
	for range 5 {
		must(t, s.Launch(work))
	}
	must(t, d.Close())
	if ran.Load() != 5 {
		t.Errorf("%d of 5 launches ran", ran.Load())
	}
}

// A launch that the driver refuses stops its stream alone.
func TestHostLaunchesThatTheDriverRefuses(t *testing.T) {
	for _, call := range []string{"cuMemHostAlloc", "cuLaunchHostFunc", "cuStreamWaitValue32"} {
		d, s := reserved(t, emulated(t))
		cudatest.Fail(t, call+":1=801")
		must(t, s.Launch(cpu.Func{Name: "host update", Do: func() error { return nil }}))
		wantText(t, s.Synchronize(), "stream s", "host update", call, "CUDA_ERROR_NOT_SUPPORTED")
		other, err := d.NewStream("other")
		must(t, err)
		must(t, errors.Join(other.Launch(cpu.Func{Name: "host update", Do: func() error { return nil }}), other.Synchronize()))
		must(t, d.Close())
	}
}

// A graph has no host work.
func TestHostLaunchesAreNotCaptured(t *testing.T) {
	needGPUs(t, 1)
	d, s := reserved(t, cudatest.Open(t, cuda.Config{Memory: limit})[0])
	work := runtime.Launch(cpu.Func{Name: "host update", Do: func() error { return nil }})
	if _, err := d.Capture(s, func() error { return s.Launch(work) }); !errors.Is(err, cuda.ErrCapturing) {
		t.Errorf("Capture = %v", err)
	}
	must(t, errors.Join(s.Launch(work), s.Synchronize()))
}

// Behind the first one, host work takes no memory of Go.
func TestHostLaunchesTakeNoMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes some")
	}
	_, s := reserved(t, emulated(t))
	work := runtime.Launch(cpu.Func{Name: "host update", Do: func() error { return nil }})
	n := testing.AllocsPerRun(50, func() {
		must(t, errors.Join(s.Launch(work), s.Synchronize()))
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
