package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/internal/hazard"
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
	// drop leaves out the wait of that number, if it is not negative, and deaf all waits for some events.
	drop, waits int
	deaf        map[runtime.Event]bool
}

// deed is one thing issued to a stream: what it reads and writes, and for a wait the record that it sees.
type deed struct {
	name          string
	stream        int
	reads, writes []runtime.Span // of one memory for all devices
	sees          int            // a deed; none
	record        bool
}

func (h *history) add(d deed) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deeds = append(h.deeds, d)
	return len(h.deeds) - 1
}

// race returns the first two deeds on the same bytes, of which one writes, that nothing orders.
func (h *history) race() error {
	actions := make([]hazard.Action, len(h.deeds))
	for i, d := range h.deeds {
		actions[i] = hazard.Action{Name: label(d.name + " on " + h.streams[d.stream]), Stream: d.stream, Wait: d.sees, Record: hazard.None}
		if d.record {
			actions[i].Record = i // an event of its own: the next record of the same one is another
		}
		for _, s := range d.reads {
			actions[i].Accesses = append(actions[i].Accesses, hazard.Access{Span: s})
		}
		for _, s := range d.writes {
			actions[i].Accesses = append(actions[i].Accesses, hazard.Access{Span: s, Write: true})
		}
	}
	return hazard.Check(actions, len(h.streams), len(actions))
}

type label string

func (l label) String() string { return string(l) }

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
	n := s.dev.add(deed{name: "record", stream: s.number, sees: none, record: true})
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	ev.(*idleEvent).record = n
	return nil
}
func (s *idleStream) Wait(ev runtime.Event) error {
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.dev.waits++
	if s.dev.waits-1 == s.dev.drop || s.dev.deaf[ev] {
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

func (l idleLibrary) PrepareUpdate(_ kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	var uses []kernels.Use
	for _, o := range all {
		uses = append(uses, o.Uses()...)
	}
	return l.launch("update", uses), nil
}

func (l idleLibrary) PrepareGuard(_ kernels.Guard, o kernels.GuardOperands) (runtime.Launch, error) {
	return l.launch("guard", o.Uses()), nil
}

func (l idleLibrary) PrepareMoments(m kernels.Moments, o kernels.MomentsOperands) (runtime.Launch, error) {
	return l.launch("moments", o.Uses(m)), nil
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
	return idleRunWithout(t, w, lib, c, plan, n, drop, func(*Executor) []runtime.Event { return nil })
}

// idleRunWithout is idleRun without the waits for some events.
func idleRunWithout(t *testing.T, w *Workload, lib kernels.Library, c Costs, plan *pipeline.Plan, n, drop int, deaf func(*Executor) []runtime.Event) *history {
	t.Helper()
	h := &history{drop: none, deaf: map[runtime.Event]bool{}}
	e := idleNew(t, w, lib, c, plan, h)
	h.deeds, h.waits, h.drop = h.deeds[:0], 0, drop
	for _, l := range e.channels { // as if nothing had ever been recorded
		for i := range l.blocks {
			*l.arrived[i].(*idleEvent), *l.freed[i].(*idleEvent) = idleEvent{none}, idleEvent{none}
		}
	}
	for _, ev := range deaf(e) {
		h.deaf[ev] = true
	}
	must(t, e.Run(context.Background(), n))
	must(t, e.Run(context.Background(), n)) // the second run begins in the memory of the first
	return h
}

// Streams and events order any two pieces of work on the same bytes of which one writes, copies between devices and host included. A
// missing wait would be seen.
func TestEventsOrderEverythingThatSharesMemory(t *testing.T) {
	t.Parallel()
	lib := targets(t, 1, host.Config{})[0].Library
	plans, dropped, seen := 0, 0, 0
	for _, x := range []struct {
		name     string
		versions pipeline.Versions
		devices  int
	}{
		{"gpipe", "", 3}, {"1f1b-flush", "", 3}, {"interleaved", "", 2}, {"chimera", "", 4}, {"zb-h1", "", 3}, {"zb-v", "", 2},
		{"gpipe-checkpoint", "", 3}, {"1f1b-recompute", "", 3}, {"v-min", "", 2}, {"own", pipeline.Stash, 3},
		{"1f1b*", pipeline.Stash, 3}, {"1f1b*", pipeline.VerticalSync, 3}, {"list", pipeline.DoubleBuffered, 3}, {"1f1b", pipeline.Latest, 4},
	} {
		w := workload(t, plainModel(t))
		c := costs(w, x.devices, 2)
		if x.name == "1f1b-recompute" {
			c.Platform = c.Platform.WithMemory(smallestFor(t, x.name, c, pipeline.Options{Microbatches: 4}))
		}
		o := pipeline.Options{Microbatches: 4, Versions: x.versions}
		if x.versions == pipeline.VerticalSync {
			o.WeightCopies = []float64{6}
		}
		var plan *pipeline.Plan
		if x.name == "own" {
			plan = recomputing(planFor(t, "1f1b*", c, o))
		} else {
			plan = planFor(t, x.name, c, o)
		}
		n := 2 * groupOf(t, w, c, plan)
		if n < 6 {
			n = 6
		}
		h := idleRun(t, w, lib, c, plan, n, none)
		if race := h.race(); race != nil {
			t.Errorf("%s: %v", x.name, race)
		}
		plans++
		for drop := 0; drop < h.waits/2; drop += 1 + h.waits/16 {
			if idleRun(t, w, lib, c, plan, n, drop).race() != nil {
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

// recomputing returns a plan whose stages keep their inputs alone.
func recomputing(plan *pipeline.Plan) *pipeline.Plan {
	own := *plan
	own.Stages = slices.Clone(plan.Stages)
	for s := range own.Stages {
		own.Stages[s].Ops = againUpTo(own.Stages[s], own.Stages[s].Last)
	}
	return &own
}

// Memory that one stream reads and another one writes again is given back by events: without the waits for any kind of them two
// pieces of work meet there.
// Only this test finds a kind of event that orders nothing any more, or a race check that is blind to it.
func TestEveryKindOfEventIsNeeded(t *testing.T) {
	t.Parallel()
	lib := targets(t, 1, host.Config{})[0].Library
	w := workload(t, plainModel(t))
	c := costs(w, 3, 2)
	c.Platform = pipeline.NewPlatform(3, pipeline.NoLimit, 5e4) // messages take longer than tasks
	stages := func(e *Executor, do func(*localStage)) {
		for _, d := range e.drivers {
			for _, t := range d.stages {
				if t != nil {
					do(t)
				}
			}
		}
	}
	slots := func(box func(*localStage) *sendBuffer, event func(*sendSlot) runtime.Event) func(*Executor) []runtime.Event {
		return func(e *Executor) (all []runtime.Event) {
			stages(e, func(t *localStage) {
				for i := range box(t).slots {
					all = append(all, event(&box(t).slots[i]))
				}
			})
			return all
		}
	}
	outputs, deltas := func(t *localStage) *sendBuffer { return &t.outputs }, func(t *localStage) *sendBuffer { return &t.deltas }
	ready, sent := func(x *sendSlot) runtime.Event { return x.ready }, func(x *sendSlot) runtime.Event { return x.sent[0] }
	channels := func(kind pipeline.Kind, events func(*channel) []runtime.Event) func(*Executor) []runtime.Event {
		return func(e *Executor) (all []runtime.Event) {
			for _, l := range e.channels {
				if l.kind == kind {
					all = append(all, events(l)...)
				}
			}
			return all
		}
	}
	arrived, freed := func(l *channel) []runtime.Event { return l.arrived }, func(l *channel) []runtime.Event { return l.freed }
	forward := func(e *Executor) (all []runtime.Event) {
		stages(e, func(t *localStage) {
			for i := range t.slabs {
				all = append(all, t.slabs[i].forward)
			}
		})
		return all
	}
	o := pipeline.Options{Microbatches: 8}
	kept, again := planFor(t, "1f1b-flush", c, o), planFor(t, "gpipe-checkpoint", c, o)
	periodic := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash})
	for _, x := range []struct {
		name   string
		events func(*Executor) []runtime.Event
		plans  []*pipeline.Plan
	}{
		{"an output is ready", slots(outputs, ready), []*pipeline.Plan{again, recomputing(periodic)}},
		{"an output has left", slots(outputs, sent), []*pipeline.Plan{again, recomputing(periodic)}},
		{"δ is ready", slots(deltas, ready), []*pipeline.Plan{kept, again, periodic, recomputing(periodic)}},
		{"δ has left", slots(deltas, sent), []*pipeline.Plan{kept, again, periodic, recomputing(periodic)}},
		{"a forward has ended", forward, []*pipeline.Plan{kept, again, periodic}},
		{"an input has arrived", channels(pipeline.CF, arrived), []*pipeline.Plan{kept, again, periodic, recomputing(periodic)}},
		{"δ has arrived", channels(pipeline.CB, arrived), []*pipeline.Plan{kept, again, periodic, recomputing(periodic)}},
		// With a flush a device has the δ of a minibatch back before it sends into the block of its output again.
		{"an input is used", channels(pipeline.CF, freed), []*pipeline.Plan{periodic, recomputing(periodic)}},
		// Those of the step after next come behind forwards that this device sends behind its verdict.
		{"partial sums of gradients have arrived", channels(0, arrived), []*pipeline.Plan{kept, again}},
		{"δ is used", channels(pipeline.CB, freed), []*pipeline.Plan{kept, again, periodic, recomputing(periodic)}},
	} {
		for i, plan := range x.plans {
			n := 2 * groupOf(t, w, c, plan)
			n = max(n, 24)
			if race := idleRun(t, w, lib, c, plan, n, none).race(); race != nil {
				t.Errorf("plan %d (%s): %v", i, plan.Strategy, race)
			}
			if idleRunWithout(t, w, lib, c, plan, n, none, x.events).race() == nil {
				t.Errorf("plan %d (%s) needs no event that says that %s", i, plan.Strategy, x.name)
			}
		}
	}
}

// Times that are measured are no round numbers: what ends and what starts at one instant may differ in the last bit.
func TestTimesAreRounded(t *testing.T) {
	t.Parallel()
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
