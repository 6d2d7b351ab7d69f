package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// Pace gives tasks a fixed duration in place of their kernels, on host devices: simulated time. Streams, events, memory and
// copies are real. What is trained means nothing.
type Pace func(kind pipeline.Kind, stage int) time.Duration

// Timing is when a task ran, in seconds from the beginning of the run. Devices that can compare their events share a clock;
// otherwise each has its own.
type Timing struct {
	Device     int
	Kind       pipeline.Kind
	Stage      int
	To         int // the other stage of a communication through a portal; 0: the next one
	Minibatch  int
	Start, End float64
}

// stamp is a task between two events.
type stamp struct {
	visit
	start, end runtime.Event
}

// stopwatch records when the tasks of a device run; nil records nothing.
type stopwatch struct {
	dev    runtime.Device
	origin runtime.Event
	list   []stamp
	events []runtime.Event // of earlier runs
	used   int
	before int // minibatches of the run before the segment
}

// shift says how many minibatches of the run come before those that are counted from now on.
func (w *stopwatch) shift(before int) {
	if w != nil {
		w.before = before
	}
}

func (w *stopwatch) event() (ev runtime.Event, err error) {
	if w.used == len(w.events) {
		if ev, err = w.dev.NewEvent(); err != nil {
			return nil, err
		}
		w.events = append(w.events, ev)
	}
	w.used++
	return w.events[w.used-1], nil
}

// begin starts the clock.
func (w *stopwatch) begin(q queue) (err error) {
	if w == nil || *q.off {
		return nil
	}
	w.list, w.used = w.list[:0], 0
	if w.origin, err = w.event(); err != nil {
		return err
	}
	if err := q.record(w.origin); err != nil {
		return err
	}
	return w.origin.Synchronize()
}

// start stamps the start of a task, end its end.
func (w *stopwatch) start(q queue, v *visit) error {
	if w == nil || *q.off {
		return nil
	}
	s := stamp{visit: *v}
	s.minibatch += w.before
	for _, ev := range []*runtime.Event{&s.start, &s.end} {
		var err error
		if *ev, err = w.event(); err != nil {
			return err
		}
	}
	w.list = append(w.list, s)
	return q.record(s.start)
}

func (w *stopwatch) end(q queue) error {
	if w == nil || *q.off {
		return nil
	}
	return q.record(w.list[len(w.list)-1].end)
}

// Timings returns when every task of the latest run ran, by start. There are none unless Options.Timed.
func (e *Executor) Timings() (all []Timing, err error) {
	for _, d := range e.drivers {
		if d.watch == nil {
			continue
		}
		for _, s := range d.watch.list {
			t := Timing{Device: d.device, Kind: s.kind, Stage: s.stage, To: s.far, Minibatch: s.minibatch}
			for _, x := range []struct {
				to *float64
				ev runtime.Event
			}{{&t.Start, s.start}, {&t.End, s.end}} {
				since, err := x.ev.Since(e.drivers[0].watch.origin)
				if err != nil {
					since, err = x.ev.Since(d.watch.origin)
				}
				if err != nil {
					return nil, fmt.Errorf("device %d: %w", d.device, err)
				}
				*x.to = since.Seconds()
			}
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b Timing) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Device, b.Device)) })
	return all, nil
}

// pauses returns the launches that stand for the tasks of a device.
func (d *driver) pauses(p Pace) map[moment]runtime.Launch {
	all := map[moment]runtime.Launch{}
	for s, t := range d.sites {
		for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
			if t != nil {
				all[moment{kind, s, 0}] = host.Pause(fmt.Sprintf("simulated %v%d", kind, s), p(kind, s))
			}
			if t != nil && t.ring != nil {
				t.ring.pauses(all, kind, p(kind, s))
			}
		}
	}
	return all
}
