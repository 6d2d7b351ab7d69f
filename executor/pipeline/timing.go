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

// Kinds of Timings that are no tasks of a plan: updates of a stage's weights, and messages between its replicas
// (pipeline.Synchronization).
const (
	Updating  = minibatchEnd
	Reducing  = reducing
	Gathering = gathering
)

// Timing is when a task ran, in seconds from the beginning of the run. Devices that can compare their events share a clock;
// otherwise each has its own.
type Timing struct {
	Device    int
	Kind      pipeline.Kind // or Updating
	Stage     int
	To        int // the other stage of a communication through a portal; 0: the next one
	Layer     int // of a message between replicas: the first one of its bucket; else 0
	Peer      int // likewise, the device that receives
	Minibatch int // of an update: with whose end it was due
	// Op is the number of an op in its stage's sequence, from 1; 0: it is the whole task. A stage without ops of its own has each layer's
	// forward and then each one's backward. Those of W come behind.
	Op         int
	Start, End float64
}

// Computes reports whether it is of a whole task of the plan that computes.
func (t Timing) Computes() bool { return t.Op == 0 && computes(t.Kind) }

// stamp is a task, or an op of it, between two events.
type stamp struct {
	instance
	op         int
	start, end runtime.Event
}

// stopwatch records when the tasks of a device run; nil records nothing. It makes events until it has as many as it keeps.
type stopwatch struct {
	dev    runtime.Device
	origin runtime.Event
	begun  time.Time // when the origin was
	most   int       // stamps that are kept, the latest; 0: all of a run
	stamps []stamp
	used   int  // stamps of this run
	open   int  // the stamp of the task that is being issued
	openOp int  // that of its op
	ops    bool // they are stamped, too
	before int  // minibatches of the run before the segment
}

// newStopwatch returns one that keeps as many periods as are wanted; nil where nothing is timed.
func newStopwatch(d *driver, timed *Timed) *stopwatch {
	if timed == nil {
		return nil
	}
	stamps := 2 * (len(d.e.order.plan.Tasks) + len(d.e.order.plan.Synchronization))
	if timed.Ops && d.step != nil {
		stamps += d.step.ops
	}
	return &stopwatch{dev: d.dev, most: timed.Periods * stamps, ops: timed.Ops}
}

// shift says how many minibatches of the run come before those that are counted from now on.
func (w *stopwatch) shift(before int) {
	if w != nil {
		w.before = before
	}
}

// begin starts the clock.
func (w *stopwatch) begin(q queue) error {
	if w == nil {
		return nil
	}
	w.used, w.open, w.openOp = 0, none, none
	if err := makeEvents(w.dev, &w.origin); err != nil {
		return err
	}
	if err := q.s.Record(w.origin); err != nil {
		return err
	}
	err := w.origin.Synchronize()
	w.begun = time.Now()
	return err
}

// next returns the number of the next stamp, which has its events.
func (w *stopwatch) next() (int, error) {
	i := w.used
	if w.most > 0 {
		i %= w.most
	}
	if i == len(w.stamps) {
		w.stamps = append(w.stamps, stamp{})
	}
	s := &w.stamps[i]
	w.used++
	return i, makeEvents(w.dev, &s.start, &s.end)
}

// start notes that the start of a task is stamped, end that its end is.
func (w *stopwatch) start(q queue) error {
	if w == nil {
		return nil
	}
	return q.of.compiler.host(command{work: stampStart, on: q})
}

func (w *stopwatch) end(q queue) error {
	if w == nil {
		return nil
	}
	return q.of.compiler.host(command{work: stampEnd, on: q})
}

// op stamps an op of a task.
func (w *stopwatch) op(q queue, o *op, issue func() error) error {
	if w == nil || !w.ops {
		return issue()
	}
	if err := q.of.compiler.host(command{work: stampOp, on: q, op: o.number}); err != nil {
		return err
	}
	if err := issue(); err != nil {
		return err
	}
	return q.of.compiler.host(command{work: stampOpEnd, on: q, op: o.number})
}

// stamp stamps the start of a task, or of an op, stampEnd its end. An array of stamps may grow in between.
func (w *stopwatch) stamp(c *command, v *instance) error {
	i, err := w.next()
	if err != nil {
		return err
	}
	s := &w.stamps[i]
	s.instance, s.op = *v, c.op
	s.minibatch += w.before
	if c.work == stampOp {
		w.openOp = i
	} else {
		w.open = i
	}
	return c.on.s.Record(s.start)
}

func (w *stopwatch) stampEnd(c *command) error {
	i := w.open
	if c.work == stampOpEnd {
		i = w.openOp
	}
	return c.on.s.Record(w.stamps[i].end)
}

// update stamps what an update issues.
func (w *stopwatch) update(q queue, issue func() error) error {
	if err := w.start(q); err != nil {
		return err
	}
	if err := issue(); err != nil {
		return err
	}
	return w.end(q)
}

// Timings returns when every task and update of the latest run ran, by start, as far as they are kept. There are none unless
// Options.Timed.
func (e *Executor) Timings() (all []Timing, err error) {
	for _, d := range e.own() {
		if d.watch == nil {
			continue
		}
		for _, s := range d.watch.stamps[:min(d.watch.used, len(d.watch.stamps))] {
			t := Timing{Device: d.device, Kind: s.kind, Stage: s.stage, To: s.far, Minibatch: s.minibatch, Op: s.op}
			if s.synchronized() {
				t.Layer, t.Peer = s.layer, s.to
			}
			for _, x := range []struct {
				to *float64
				ev runtime.Event
			}{{&t.Start, s.start}, {&t.End, s.end}} {
				since, err := x.ev.Since(e.own()[0].watch.origin)
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
	SortTimings(all)
	return all, nil
}

// Origin returns the instant from which the Timings of the latest run count.
func (e *Executor) Origin() time.Time {
	w := e.own()[0].watch
	before := 0.0
	for _, d := range e.own() {
		for _, s := range d.watch.stamps[:min(d.watch.used, len(d.watch.stamps))] {
			if since, err := s.start.Since(w.origin); err == nil {
				before = min(before, since.Seconds())
			}
		}
	}
	return w.begun.Add(time.Duration(before * float64(time.Second)))
}

// SortTimings orders tasks by their start. Where some began before 0, as a device may that begins before the first one does, times
// count from the first of them.
func SortTimings(all []Timing) {
	slices.SortStableFunc(all, func(a, b Timing) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Device, b.Device)) })
	if len(all) == 0 {
		return
	}
	before := min(0, all[0].Start)
	for i := range all {
		all[i].Start, all[i].End = all[i].Start-before, all[i].End-before
	}
}

// pauses returns the launches that stand for the tasks of a device.
func (d *driver) pauses(p Pace) map[taskKey]runtime.Launch {
	all := map[taskKey]runtime.Launch{}
	for s, t := range d.stages {
		for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
			if t != nil {
				all[taskKey{kind, s, 0}] = host.Pause(fmt.Sprintf("simulated %v%d", kind, s), p(kind, s))
			}
			if t != nil && t.ring != nil {
				t.ring.pauses(all, kind, p(kind, s))
			}
		}
	}
	return all
}
