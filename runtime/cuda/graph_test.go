//go:build cuda && linux && amd64

package cuda_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
)

// rig is a device with three streams and a few events, as a step has.
type rig struct {
	*testing.T
	*cuda.Device
	compute, in, out runtime.Stream
	events           []runtime.Event
}

const piece = 4096

func newRig(t *testing.T) *rig {
	needGPUs(t, 1)
	r := &rig{T: t, Device: cudatest.Open(t, cuda.Config{Memory: limit})[0]}
	must(t, r.Reserve(4*piece, 4*piece))
	for name, s := range map[string]*runtime.Stream{"compute": &r.compute, "in": &r.in, "out": &r.out} {
		var err error
		*s, err = r.NewStream(name)
		must(t, err)
	}
	for range 5 {
		e, err := r.NewEvent()
		must(t, err)
		r.events = append(r.events, e)
	}
	return r
}

// step copies in, mixes twice and copies out, on three streams, with the events of a real step. The last event makes the
// next step wait for this one.
func (r *rig) step() error {
	ready, begin, end, done, returned := r.events[0], r.events[1], r.events[2], r.events[3], r.events[4]
	a, b := arena(0, piece), arena(piece, piece)
	for _, call := range []func() error{
		func() error { return r.in.Wait(returned) },
		func() error { return r.in.Copy(b, host(0, piece)) },
		func() error { return r.in.Record(ready) },
		func() error { return r.compute.Wait(ready) },
		func() error { return r.compute.Record(begin) },
		func() error { return r.compute.Launch(cudatest.Mix(r.Device, a, b)) },
		func() error { return r.compute.Launch(cudatest.Mix(r.Device, b, a)) },
		func() error { return r.compute.Record(end) },
		func() error { return r.compute.Record(done) },
		func() error { return r.out.Wait(done) },
		func() error { return r.out.Copy(host(piece, piece), b) },
		func() error { return r.out.Record(returned) },
	} {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// run runs steps, waits after each for its result, and returns all results.
func (r *rig) run(steps int, step func() error) []byte {
	r.Helper()
	b, err := r.HostBytes(host(0, 2*piece))
	must(r, err)
	var all []byte
	for i := range steps {
		for j := range piece {
			b[j] = byte(i*7 + j)
		}
		must(r, step())
		must(r, r.events[4].Synchronize())
		all = append(all, b[piece:]...)
	}
	return all
}

func TestAGraphDoesWhatTheStepDoes(t *testing.T) {
	const steps = 20
	want := newRig(t)
	expected := want.run(steps, want.step)

	r := newRig(t)
	g, err := r.Capture(r.compute, r.step)
	must(t, err)
	if n := g.(*cuda.Graph).Nodes(); n < 5 {
		t.Errorf("%d nodes", n)
	}
	if got := r.run(steps, func() error { return r.compute.Launch(g) }); !bytes.Equal(got, expected) {
		t.Error("the results differ")
	}
	elapsed, err := r.events[2].Since(r.events[1])
	must(t, err)
	if elapsed <= 0 || elapsed > time.Minute {
		t.Errorf("the launches in the graph took %v", elapsed)
	}
	for _, s := range []runtime.Stream{r.compute, r.in, r.out} {
		must(t, s.Synchronize())
	}
}

// Work around a graph is ordered with it on each of its streams, as if the graph had been issued piece by piece.
func TestAGraphIsOrderedWithWorkOnItsStreams(t *testing.T) {
	want, got := newRig(t), newRig(t)
	g, err := got.Capture(got.compute, got.step)
	must(t, err)
	around := func(r *rig, step func() error) []byte {
		return r.run(5, func() error {
			for _, call := range []func() error{
				func() error { return r.out.Copy(arena(2*piece, piece), arena(0, piece)) },
				func() error { return r.in.Wait(r.events[4]) },
				step,
				func() error { return r.out.Copy(arena(3*piece, piece), arena(piece, piece)) },
				func() error { return r.out.Copy(host(2*piece, piece), arena(3*piece, piece)) },
				r.out.Synchronize,
			} {
				if err := call(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	read, err := want.NewEvent()
	must(t, err)
	a := around(want, func() error { // piece by piece, the copy out in front is nothing that compute waits for by itself
		return errors.Join(want.out.Record(read), want.compute.Wait(read), want.step())
	})
	if b := around(got, func() error { return got.compute.Launch(g) }); !bytes.Equal(a, b) {
		t.Error("the results differ")
	}
}

// With a launch that is held up, on a stream before the graph or in the graph, nothing behind it may end.
func TestAGraphIsHeldUpAndHoldsUp(t *testing.T) {
	r := newRig(t)
	held := func(more func() error) runtime.Launch {
		g, err := r.Capture(r.compute, func() error {
			return errors.Join(r.in.Copy(arena(0, 8), host(0, 8)), more())
		})
		must(t, err)
		return g
	}
	gate, open := cudatest.Gate(r.Device)
	g := held(func() error { return r.compute.Launch(cudatest.Mix(r.Device, arena(8, 8), arena(16, 8))) })
	must(t, r.in.Launch(gate))
	must(t, r.compute.Launch(g))
	must(t, r.compute.Record(r.events[0]))
	r.wantPending("a graph whose second stream is held up", r.events[0])
	open()
	must(t, r.compute.Synchronize())

	gate, open = cudatest.Gate(r.Device)
	g = held(func() error { return r.compute.Launch(gate) })
	must(t, r.compute.Launch(g))
	must(t, r.in.Record(r.events[1]))
	r.wantPending("the second stream, behind a graph that is held up", r.events[1])
	open()
	must(t, r.in.Synchronize())
	must(t, r.compute.Synchronize())
}

// A graph that waits for an event of outside waits, at every launch, for its latest Record.
func TestAGraphWaitsForRecordsOutside(t *testing.T) {
	r := newRig(t)
	outside, after := r.events[0], r.events[1]
	g, err := r.Capture(r.compute, func() error {
		return errors.Join(r.compute.Wait(outside), r.compute.Launch(cudatest.Mix(r.Device, arena(0, 8), arena(8, 8))))
	})
	must(t, err)
	if n := g.(*cuda.Graph).Nodes(); n != 2 {
		t.Errorf("%d nodes, want the wait and the kernel", n)
	}
	for range 2 {
		gate, open := cudatest.Gate(r.Device)
		must(t, r.in.Launch(gate))
		must(t, r.in.Copy(arena(8, 8), host(0, 8)))
		must(t, r.in.Record(outside))
		must(t, r.compute.Launch(g))
		must(t, r.compute.Record(after))
		r.wantPending("a graph that waits for a copy that is held up", after)
		open()
		must(t, r.compute.Synchronize())
		must(t, r.in.Wait(after)) // the next copy writes what the graph reads
	}
}

// wantPending gives an event that should be pending the time to be wrong.
func (r *rig) wantPending(what string, e runtime.Event) {
	r.Helper()
	time.Sleep(50 * time.Millisecond)
	if _, err := e.Since(e); !errors.Is(err, runtime.ErrNotComplete) {
		r.Errorf("%s has ended: %v", what, err)
	}
}

func TestWhatCannotBeCapturedFailsTheCapture(t *testing.T) {
	r := newRig(t)
	cause := errors.New("the cause")
	for name, c := range map[string]struct {
		issue func() error
		want  error
	}{
		"the caller's error": {func() error {
			must(t, r.step())
			return cause
		}, cause},
		"a synchronization": {func() error {
			must(t, r.in.Copy(arena(0, 8), host(0, 8)))
			_ = r.compute.Synchronize()
			return nil
		}, cuda.ErrCapturing},
		"a wait on the host for what has not run": {func() error {
			must(t, r.compute.Record(r.events[0]))
			return r.events[0].Synchronize()
		}, cuda.ErrCapturing},
		"a launch that fails": {func() error {
			_ = r.compute.Launch(cudatest.Fails(r.Device, cause))
			return nil
		}, cause},
	} {
		g, err := r.Capture(r.compute, c.issue)
		if !errors.Is(err, c.want) || g != nil {
			t.Errorf("%s: got %v, %v", name, g, err)
		}
		for _, s := range []runtime.Stream{r.compute, r.in, r.out} {
			must(t, s.Synchronize()) // they are as they were
		}
	}
	if _, err := r.Capture(nil, r.step); err == nil {
		t.Error("captured on no stream")
	}
	g, err := r.Capture(r.compute, r.step)
	must(t, err)
	must(t, r.compute.Launch(g))
	must(t, r.compute.Synchronize())
	must(t, r.Close())
	if _, err := r.Capture(r.compute, r.step); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("capture on a closed device: %v", err)
	}
}

func TestLaunchingAGraphAllocatesNothing(t *testing.T) {
	r := newRig(t)
	g, err := r.Capture(r.compute, r.step)
	must(t, err)
	step := func() {
		must(t, r.compute.Launch(g))
		must(t, r.compute.Synchronize())
	}
	step()
	if raceEnabled {
		return // the race detector allocates
	}
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("a launch made %v heap allocations", n)
	}
}

func TestAGraphThatFailsStopsItsStreams(t *testing.T) {
	d := emulated(t)
	must(t, d.Close())
	r := newRig(t)
	g, err := r.Capture(r.compute, r.step)
	must(t, err)
	cudatest.Fail(t, "cuGraphLaunch:1=701")
	must(t, r.compute.Launch(g))
	for _, s := range []runtime.Stream{r.compute, r.in, r.out} {
		wantText(t, s.Synchronize(), "graph of", "cuGraphLaunch", "701")
	}
	wantText(t, r.events[4].Synchronize(), "cuGraphLaunch")
}
