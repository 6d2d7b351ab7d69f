package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// history is everything that the drivers issue to devices that do nothing, in one order that agrees with theirs: a record
// stands before the waits that see it.
type history struct {
	mu      sync.Mutex
	deeds   []deed
	streams []string
	// drop leaves out the wait of that number, if it is not negative.
	drop, waits int
}

// deed is one thing issued to a stream: what it reads and writes, and for a wait the record that it sees.
type deed struct {
	name          string
	stream        int
	reads, writes []runtime.Span // of one memory for all devices
	sees          int            // a deed; none
}

func (h *history) add(d deed) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deeds = append(h.deeds, d)
	return len(h.deeds) - 1
}

// race returns the first two deeds on the same bytes, of which one writes, that nothing orders.
func (h *history) race() string {
	n := len(h.streams)
	now := make([][]int, n) // by stream: how many deeds of each stream have ended before its next one
	for s := range now {
		now[s] = make([]int, n)
	}
	behind := make([][]int, len(h.deeds)) // likewise, when a deed has ended
	issued := make([][]int, n)            // deeds of each stream
	for i := range h.deeds {
		d := &h.deeds[i]
		if d.sees != none {
			for s, k := range behind[d.sees] {
				now[d.stream][s] = max(now[d.stream][s], k)
			}
		}
		for s := range issued {
			if s == d.stream {
				continue
			}
			for _, j := range issued[s][now[d.stream][s]:] {
				if e := &h.deeds[j]; clash(d.writes, e.writes) || clash(d.writes, e.reads) || clash(d.reads, e.writes) {
					return fmt.Sprintf("%s (%s) and %s (%s)", e.name, h.streams[e.stream], d.name, h.streams[d.stream])
				}
			}
		}
		issued[d.stream] = append(issued[d.stream], i)
		now[d.stream][d.stream]++
		behind[i] = append([]int(nil), now[d.stream]...)
	}
	return ""
}

func clash(a, b []runtime.Span) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return true
			}
		}
	}
	return false
}

// idle is a device of a history.
type idle struct {
	*history
	number int
	host   []byte
}

type idleStream struct {
	dev    *idle
	name   string
	number int
}

type idleEvent struct{ record int }

// idleLaunch is a launch that is known by what it reads and writes.
type idleLaunch struct {
	name          string
	reads, writes []runtime.Span
}

func (l *idleLaunch) Kernel() string { return l.name }

const apart = 1 << 40 // between the memories of two devices

func (d *idle) at(s runtime.Span) runtime.Span {
	s.Offset += int64(d.number) * apart
	return s
}

func (d *idle) Info() runtime.Info {
	return runtime.Info{Name: fmt.Sprint("idle ", d.number), Kind: "idle"}
}
func (d *idle) Reserve(_, host int64) error {
	d.host = make([]byte, host)
	return nil
}
func (d *idle) NewEvent() (runtime.Event, error) { return &idleEvent{none}, nil }
func (d *idle) HostBytes(s runtime.Span) ([]byte, error) {
	return d.host[s.Offset:s.End()], nil
}
func (d *idle) Close() error { return nil }
func (d *idle) NewStream(name string) (runtime.Stream, error) {
	d.streams = append(d.streams, fmt.Sprintf("device %d, %s", d.number, name))
	return &idleStream{d, name, len(d.streams) - 1}, nil
}

func (s *idleStream) Name() string       { return s.name }
func (s *idleStream) Synchronize() error { return nil }
func (s *idleStream) Launch(l runtime.Launch) error {
	x := l.(*idleLaunch)
	s.dev.add(deed{name: x.name, stream: s.number, reads: x.reads, writes: x.writes, sees: none})
	return nil
}
func (s *idleStream) copyTo(to *idle, dst, src runtime.Span) error {
	s.dev.add(deed{
		name: fmt.Sprintf("copy to %v", dst), stream: s.number, sees: none,
		reads: []runtime.Span{s.dev.at(src)}, writes: []runtime.Span{to.at(dst)},
	})
	return nil
}
func (s *idleStream) Copy(dst, src runtime.Span) error { return s.copyTo(s.dev, dst, src) }
func (s *idleStream) CopyPeer(peer runtime.Device, dst, src runtime.Span) error {
	return s.copyTo(peer.(*idle), dst, src)
}
func (s *idleStream) Record(ev runtime.Event) error {
	n := s.dev.add(deed{name: "record", stream: s.number, sees: none})
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	ev.(*idleEvent).record = n
	return nil
}
func (s *idleStream) Wait(ev runtime.Event) error {
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.dev.waits++
	if s.dev.waits-1 == s.dev.drop {
		return nil
	}
	s.dev.deeds = append(s.dev.deeds, deed{name: "wait", stream: s.number, sees: ev.(*idleEvent).record})
	return nil
}
func (e *idleEvent) Synchronize() error                         { return nil }
func (e *idleEvent) Since(runtime.Event) (time.Duration, error) { return 0, nil }

// idleLibrary prepares launches of an idle device.
type idleLibrary struct {
	kernels.Library // for workspaces
	dev             *idle
}

func (l idleLibrary) launch(name string, uses []kernels.Use) runtime.Launch {
	x := &idleLaunch{name: name}
	for _, u := range uses {
		s := l.dev.at(runtime.Span{Space: u.Span.Space, Offset: u.Span.Offset, Bytes: u.Bytes})
		if u.Read {
			x.reads = append(x.reads, s)
		}
		if u.Write {
			x.writes = append(x.writes, s)
		}
	}
	return x
}

func (l idleLibrary) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	n, err := l.Workspace(c)
	return l.launch(c.Op.Kind()+" "+c.Pass.String(), c.Uses(o, n)), err
}

func (l idleLibrary) PrepareUpdate(_ kernels.Update, o kernels.UpdateOperands) (runtime.Launch, error) {
	return l.launch("update", o.Uses()), nil
}

// idleNew binds a plan to idle devices.
func idleNew(t *testing.T, w *Workload, lib kernels.Library, c Costs, plan *pipeline.Plan, h *history) *Executor {
	t.Helper()
	var on []executor.Target
	for d := range c.Platform.Devices {
		dev := &idle{history: h, number: d}
		on = append(on, executor.Target{Device: dev, Library: idleLibrary{lib, dev}})
	}
	e, err := New(w, on, c, plan, Options{Feed: still{}, Rate: rate})
	must(t, err)
	return e
}

// idleRun issues n minibatches of a plan to idle devices.
func idleRun(t *testing.T, w *Workload, lib kernels.Library, c Costs, plan *pipeline.Plan, n, drop int) *history {
	t.Helper()
	h := &history{drop: none}
	e := idleNew(t, w, lib, c, plan, h)
	h.deeds, h.waits, h.drop = h.deeds[:0], 0, drop
	for _, l := range e.lanes { // as if nothing had ever been recorded
		for i := range l.blocks {
			l.arrived[i], l.freed[i] = &idleEvent{none}, &idleEvent{none}
		}
	}
	must(t, e.Run(context.Background(), n))
	must(t, e.Run(context.Background(), n)) // the second run begins in the memory of the first
	return h
}

// Any two pieces of work on the same bytes, of which one writes, are ordered by streams and events, copies between devices
// and host included; and that would be seen if a wait were missing.
func TestEventsOrderEverythingThatSharesMemory(t *testing.T) {
	lib := targets(t, 1, host.Config{})[0].Library
	plans, dropped, seen := 0, 0, 0
	for _, x := range []struct {
		name     string
		versions pipeline.Versions
		devices  int
	}{
		{"gpipe", "", 3}, {"1f1b-flush", "", 3}, {"interleaved", "", 2}, {"chimera", "", 4}, {"zb-h1", "", 3}, {"zb-v", "", 2},
		{"1f1b*", pipeline.Stash, 3}, {"1f1b*", pipeline.VerticalSync, 3}, {"list", pipeline.DoubleBuffered, 3}, {"1f1b", pipeline.Latest, 4},
	} {
		w := workload(t, plainModel(t))
		c := costs(w, x.devices, 2)
		o := pipeline.Options{Microbatches: 4, Versions: x.versions}
		if x.versions == pipeline.VerticalSync {
			o.WeightCopies = []float64{6}
		}
		plan := planFor(t, x.name, c, o)
		n := 2 * groupOf(t, w, c, plan)
		if n < 6 {
			n = 6
		}
		h := idleRun(t, w, lib, c, plan, n, none)
		if race := h.race(); race != "" {
			t.Errorf("%s: nothing orders %s", x.name, race)
		}
		plans++
		for drop := 0; drop < h.waits/2; drop += 1 + h.waits/16 {
			if idleRun(t, w, lib, c, plan, n, drop).race() != "" {
				seen++
			}
			dropped++
		}
	}
	t.Logf("%d plans; %d of %d missing waits are seen", plans, seen, dropped)
	if seen == 0 {
		t.Error("no missing wait is seen")
	}
}

// Times that are measured are no round numbers: what ends and what starts at one instant may differ in the last bit.
func TestTimesAreRounded(t *testing.T) {
	w := workload(t, plainModel(t))
	lib := targets(t, 1, host.Config{})[0].Library
	for seed := range uint64(15) {
		for _, name := range []string{"chimera", "1f1b-flush", "zb-v", "interleaved", "1f1b*", "list"} {
			r := rand.New(rand.NewPCG(seed, 3))
			c := costs(w, 2, seed)
			for i := range c.Chain.Layers {
				l := &c.Chain.Layers[i]
				x, y := r.Float64()/3, r.Float64()/7
				l.ForwardS, l.BackwardS, l.BackwardInputS, l.BackwardWeightS = r.Float64()/9, x+y, &x, &y
			}
			c.Platform = pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())
			plan := planFor(t, name, c, pipeline.Options{Microbatches: 8})
			idleNew(t, w, lib, c, plan, &history{drop: none})
		}
	}
}
