package measure

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// If there is room, windows lie behind the extent of the step beside them. They always lie within the memory, at addresses that kernels
// take. On the host they fit the memory that is left, or have the smallest size.
func TestWindowsAreWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		extent := rapid.Int64Range(4*kernels.Alignment, 1<<30).Draw(t, "extent")
		limit := extent + rapid.OneOf(rapid.Int64Range(0, 4*kernels.Alignment), rapid.Int64Range(0, 1<<28)).Draw(t, "room")
		host := rapid.Int64Range(-1<<20, 1<<28).Draw(t, "host")
		w := windowsBeside(extent, limit, host)
		end := w.limit(extent, limit)
		behind := kernels.Align(extent)+2*w.device <= end
		switch {
		case w.device <= 0 || w.device%kernels.Alignment != 0 || w.host%kernels.Alignment != 0 || end%kernels.Alignment != 0:
			t.Fatalf("%+v up to %d", w, end)
		case end > limit || 2*w.device > end || !behind && limit-extent >= 4*kernels.Alignment:
			t.Fatalf("%+v up to %d, of %d beside %d", w, end, limit, extent)
		case w.host > mostWindow || w.device > w.host || w.host > probeBytes && 2*w.host > host:
			t.Fatalf("%+v of %d bytes of host memory", w, host)
		}
	})
}

// On a link with a stated bandwidth that is what is measured, in both directions, also together: the host device's link
// is duplex.
func TestTheLinkIsMeasuredAsStated(t *testing.T) {
	t.Parallel()
	const stated = 200e6
	r := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Bandwidth: stated, Chaos: 1}, nil)
	probe := windows{probeBytes, 2 * probeBytes}
	m, err := r.timer(t, probe).newProber(probe, time.Hour)
	must(t, err)
	// A stream that wakes up late for the first event makes up for it, and the link seems faster: the slowest of five counts. A busy machine
	// is slower, by how much is nobody's to say: a wrong unit would show in the fastest.
	slowest, fastest := map[string]float64{}, map[string]float64{}
	for range 5 {
		p, err := m.measure(t.Context())
		must(t, err)
		for name, got := range map[string]float64{
			"to host": p.ToHost, "to device": p.ToDevice, "to host, together": p.ToHostTogether, "to device, together": p.ToDeviceTogether,
		} {
			if was, known := slowest[name]; !known || got < was {
				slowest[name] = got
			}
			fastest[name] = max(fastest[name], got)
		}
	}
	for name := range slowest {
		if slowest[name] > 1.02*stated || fastest[name] < stated/1e4 {
			t.Errorf("%s: %.3g to %.3g bytes/s, stated are %.3g", name, slowest[name], fastest[name], stated)
		}
	}
}

// watched is a stream that says which copies it is given.
type watched struct {
	runtime.Stream
	copies func(dst, src runtime.Span)
}

func (w watched) Copy(dst, src runtime.Span) error {
	w.copies(dst, src)
	return w.Stream.Copy(dst, src)
}

// newWatched returns a prober of windows of two copies on the device and three on the host, and what each of its directions is about to copy
// goes to copies.
func newWatched(t *testing.T, copies func(direction int, dst, src runtime.Span)) (rig, *prober) {
	t.Helper()
	r := newRig(t, testModel(t), host.Config{}, nil)
	probe := windows{2 * probeBytes, 3 * probeBytes}
	m, err := r.timer(t, probe).newProber(probe, time.Hour)
	must(t, err)
	for i := range m.direction {
		d := m.direction[i]
		d.stream = watched{d.stream, func(dst, src runtime.Span) { copies(i, dst, src) }}
	}
	return r, m
}

// Copies go through all of their windows, on both sides, and each direction has its own windows. No byte is copied again before its window
// is through, whether copies are measured alone or beside a step.
func TestCopiesGoThroughTheirWindows(t *testing.T) {
	t.Parallel()
	const copies = 12
	var seen [2][2][]runtime.Span // by direction: dst, src
	stop := make(chan struct{})
	_, m := newWatched(t, func(i int, dst, src runtime.Span) {
		seen[i][0], seen[i][1] = append(seen[i][0], dst), append(seen[i][1], src)
		if len(seen[i][0]) == 2*copies {
			close(stop)
		}
	})
	_, err := m.copy([]int{chain.ToHost, chain.ToDevice}, probeBytes, copies)
	must(t, err)
	for i := range m.direction {
		stop = make(chan struct{})
		_, err := m.direction[i].keepCopying(stop)
		must(t, err)
	}
	for i, sides := range seen {
		for side, spans := range sides {
			space, places := runtime.Host, 3
			if (side == 0) == (i == chain.ToDevice) {
				space, places = runtime.Arena, 2
			}
			for k, s := range spans {
				if s.Space != space || s.Bytes != probeBytes {
					t.Fatalf("direction %d, copy %d: %v, want %d bytes of %v", i, k, s, probeBytes, space)
				}
				for back := 1; back <= min(places, k); back++ {
					if spans[k-back].Overlaps(s) != (back == places) {
						t.Errorf("direction %d, copy %d of %v, and %v %d copies before; the window has %d places", i, k, s, spans[k-back], back, places)
					}
				}
				for _, other := range append(seen[1-i][0][:3:3], seen[1-i][1][:3]...) {
					if s.Overlaps(other) {
						t.Errorf("both directions copy %v and %v", s, other)
					}
				}
			}
		}
	}
}

// All of the windows has been written to before the first copy: every page of the host's, and all of the device's, by its own kernels.
func TestWindowsAreWrittenBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	const before = 0xbf // a float32 of four of them is negative: what kernels write is 0
	var r rig
	var m *prober
	copies := 0
	r, m = newWatched(t, func(int, runtime.Span, runtime.Span) {
		if copies++; copies > 1 {
			return
		}
		const page = 4 << 10
		for i, d := range m.direction {
			of := map[runtime.Space]runtime.Span{d.dst.Space: d.dst, d.src.Space: d.src}
			bytes, err := m.device.HostBytes(of[runtime.Host])
			must(t, err)
			for at := 0; at < len(bytes); at += page {
				if !slices.ContainsFunc(bytes[at:at+page], func(b byte) bool { return b != 0 }) {
					t.Fatalf("direction %d: page %d of %d of the host's window is as the system gave it", i, at/page, len(bytes)/page)
				}
			}
			bytes = make([]byte, of[runtime.Arena].Bytes)
			must(t, r.dev.Peek(of[runtime.Arena], bytes))
			if at := slices.Index(bytes, before); at >= 0 {
				t.Fatalf("direction %d: byte %d of the device's window was not written", i, at)
			}
		}
	})
	for _, d := range m.direction {
		for _, s := range []runtime.Span{d.dst, d.src} {
			if s.Space == runtime.Arena {
				must(t, r.dev.Fill(s, before))
			}
		}
	}
	_, err := m.measure(t.Context())
	must(t, err)
	if copies == 0 {
		t.Error("nothing was copied")
	}
}

// A link on which nothing arrives is given up, when it has taken too long or when the measurement is no longer wanted, and the device
// can be closed.
func TestLinksThatAreTooSlow(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Bandwidth: 1e6, Until: ctx}, nil)
		probe := windows{probeBytes, 2 * probeBytes}
		timer, patience := r.timer(t, probe), time.Millisecond
		if stop {
			patience = time.Hour
			time.AfterFunc(time.Millisecond, cancel) // whenever that is
		}
		m, err := timer.newProber(probe, patience)
		must(t, err)
		for err == nil { // a copy of a buffer takes 4 s
			_, err = m.patiently([]int{0, 1}, m.bytes, 1)
		}
		if stop && !errors.Is(err, runtime.ErrAbandoned) || !stop && !errors.Is(err, ErrSlowLink) {
			t.Errorf("stopped %v: %v", stop, err)
		}
		cancel()
		var got float64
		if err := m.bandwidth(ctx, []int{0}, []*float64{&got}); !errors.Is(err, context.Canceled) {
			t.Errorf("stopped before: %v", err)
		}
	}
}

// A slow link is measured with as few bytes as it takes, and never as faster than it is, however late its streams wake up.
func TestSlowLinksAreMeasuredWithFewBytes(t *testing.T) {
	t.Parallel()
	const stated = 64 << 10 // bytes/s: a whole buffer takes a minute
	r := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Bandwidth: stated, Chaos: 1}, nil)
	probe := windows{probeBytes, 2 * probeBytes}
	m, err := r.timer(t, probe).newProber(probe, time.Hour)
	must(t, err)
	for range 5 {
		var got float64
		must(t, m.bandwidth(t.Context(), []int{0}, []*float64{&got}))
		if m.direction[0].bytes > 4*firstProbe || got > stated {
			t.Errorf("%d bytes measured %v bytes/s, stated are %v", m.direction[0].bytes, got, float64(stated))
		}
	}
}

// chooser is a library that says what it chose.
type chooser struct{ kernels.Library }

func (chooser) Chosen() any { return []string{"ours"} }

func (chooser) ExportChoices() (json.RawMessage, error) { return nil, nil }

// A profile keeps what a library chose while it was measured.
func TestAProfileKeepsTheChoices(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, func(l kernels.Library) kernels.Library { return chooser{l} })
	open := func() (executor.Target, error) {
		fresh := openRig(t, testModel(t), host.Config{}, func(l kernels.Library) kernels.Library { return chooser{l} })
		return fresh.on, nil
	}
	c, err := Profile(t.Context(), r.Workload, open, testMemory/2, fill, ProfileOptions{Repeats: 1})
	must(t, err)
	if got := string(c.Extra[KernelsField]); got != `["ours"]` {
		t.Errorf("the profile has %q", got)
	}
}
