package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// Timing is when a task ran, in seconds from the beginning of the run. Devices that can compare their events share a clock;
// otherwise each has its own.
type Timing struct {
	Device    int
	Kind      pipeline.Kind // or pipeline.Update
	Stage     int
	To        int // the other stage of a communication through a portal; 0: the next one
	Layer     int // of a message between replicas: the first one of its bucket; else 0
	Peer      int // likewise, the device that receives
	Minibatch int // of an update: with whose end it was due
	// Op is the number of an op in its stage's sequence, from 1; 0: it is the whole task; TheBatch. A stage without ops of its own has each
	// layer's forward and then each one's backward. Those of W come behind. Of an op of a cyclic plan (pipeline.CycleOp) it is the position, from 1.
	Op         int
	Start, End float64
}

// TheBatch is the Op of what brings a batch to where its forward reads it, before that begins.
const TheBatch = -1

// Computes reports whether it is of a whole task of the plan that computes.
func (t Timing) Computes() bool { return t.Op == 0 && order.Computes(t.Kind) }

// newStopwatch returns one that keeps as many periods as are wanted; nil where nothing is timed.
func newStopwatch(d *driver, timed *Timed) *stopwatch {
	if timed == nil {
		return nil
	}
	plan := d.lay.order.Plan
	stamps := 2*(len(plan.Tasks)+len(plan.Synchronization)) + len(plan.Cycle)
	return &stopwatch{dev: d.Dev, compute: d.compute, most: timed.Periods * stamps, byOp: timed.Ops && d.step != nil}
}

// shift says how many minibatches of the run come before those that are counted from now on.
func (w *stopwatch) shift(before int) {
	if w != nil {
		w.before = before
	}
}

// begin starts the clock.
func (w *stopwatch) begin(q table.Queue) error {
	if w == nil {
		return nil
	}
	w.used, w.open = 0, none
	if err := makeEvents(w.dev, &w.first, &w.origin); err != nil {
		return err
	}
	if err := q.S.Record(w.origin); err != nil || !w.begun.IsZero() {
		return err
	}
	if err := q.S.Record(w.first); err != nil {
		return err
	}
	err := w.first.Synchronize()
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
func (w *stopwatch) start(q table.Queue) {
	if w == nil {
		return
	}
	w.goesOn = false
	q.Of.Recording.Note(table.Command{Verb: table.DoWork, Work: table.StampStart, On: q})
}

func (w *stopwatch) end(q table.Queue) {
	if w == nil {
		return
	}
	w.goesOn = false
	q.Of.Recording.Note(table.Command{Verb: table.DoWork, Work: table.StampEnd, On: q})
}

// op stamps an op of a task in a step with a flush, or what brings its batch. One on the compute stream that waits for no other stream
// begins when the one before it there has ended.
func (w *stopwatch) op(q table.Queue, x stamp, waits bool, issue func() error) error {
	if w == nil || !w.byOp {
		return issue()
	}
	x.onCompute = q == w.compute
	if !x.onCompute || !w.goesOn || waits {
		if err := makeEvents(w.dev, &x.start); err != nil {
			return err
		}
		q.RecordTime(x.start)
	}
	if err := issue(); err != nil {
		return err
	}
	if err := makeEvents(w.dev, &x.end); err != nil {
		return err
	}
	w.ops, w.goesOn = append(w.ops, x), w.goesOn || x.onCompute
	q.RecordTime(x.end)
	return nil
}

// stamp stamps the start of a task, stampEnd its end. An array of stamps may grow in between.
func (w *stopwatch) stamp(c *table.Command, v *order.Instance) (err error) {
	if w.open, err = w.next(); err != nil {
		return err
	}
	s := &w.stamps[w.open]
	s.Instance = *v
	s.Minibatch += w.before
	return c.On.S.Record(s.start)
}

func (w *stopwatch) stampEnd(c *table.Command) error { return c.On.S.Record(w.stamps[w.open].end) }

// update stamps what an update issues.
func (w *stopwatch) update(q table.Queue, issue func() error) error {
	w.start(q)
	if err := issue(); err != nil {
		return err
	}
	w.end(q)
	return nil
}

// Timings returns when every task and update of the latest run ran, and with Timed.Ops the ops of its last step, by start, as far as they
// are kept. There are none unless Options.Timed.
func (e *Executor) Timings() (all []Timing, err error) {
	own := e.own()
	for _, d := range own {
		if d.watch == nil || d.watch.used == 0 {
			continue
		}
		for _, s := range d.watch.stamps[:min(d.watch.used, len(d.watch.stamps))] {
			t, err := s.timing(own[0].watch.origin, d, 0)
			if err != nil {
				return nil, err
			}
			all = append(all, t)
		}
		end := 0.0 // of the op before on the compute stream
		for i := range d.watch.ops {
			s := d.watch.ops[i]
			s.Minibatch += d.watch.before
			t, err := s.timing(own[0].watch.origin, d, end)
			if err != nil {
				return nil, err
			}
			if all = append(all, t); s.onCompute {
				end = t.End
			}
		}
	}
	SortTimings(all)
	return all, nil
}

// timing returns when a stamp of a device was, behind the origin of the first device; start counts where the stamp has none of its own.
func (s *stamp) timing(origin runtime.Event, d *driver, start float64) (Timing, error) {
	t := Timing{Device: d.Number, Kind: s.Kind, Stage: s.Stage, To: s.Far, Minibatch: s.Minibatch, Op: s.op, Start: start}
	if s.Kind == pipeline.CycleOp {
		t.Op = s.Place.Moment() + 1
	}
	if s.Synchronized() {
		t.Layer, t.Peer = s.Layer, s.To
	}
	for _, x := range []struct {
		to *float64
		ev runtime.Event
	}{{&t.Start, s.start}, {&t.End, s.end}} {
		if x.ev == nil {
			continue
		}
		since, err := x.ev.Since(origin)
		if err != nil {
			since, err = x.ev.Since(d.watch.origin)
		}
		if err != nil {
			return t, fmt.Errorf("device %d: %w", d.Number, err)
		}
		*x.to = since.Seconds()
	}
	return t, nil
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
	if since, err := w.origin.Since(w.first); err == nil {
		before += since.Seconds()
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

// pausesOf returns the launches that stand for the tasks of a device.
func pausesOf(stages []*localStage, p Pace) map[order.TaskKey]runtime.Launch {
	all := map[order.TaskKey]runtime.Launch{}
	for s, t := range stages {
		for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
			if t != nil {
				all[order.TaskKey{Kind: kind, Stage: s, Residue: 0}] = host.Pause(fmt.Sprintf("simulated %v%d", kind, s), p(kind, s))
			}
			if t != nil && t.ring != nil {
				t.ring.pauses(all, kind, p(kind, s))
			}
		}
	}
	return all
}

// CycleSpans returns when the ops of a cyclic plan ran, by the step that issues them: an op with a prime in the one behind its own.
func CycleSpans(plan *pipeline.Plan, ran []Timing) (all []cycle.Span) {
	for _, t := range ran {
		if t.Kind != pipeline.CycleOp {
			continue
		}
		x := cycle.Span{Step: t.Minibatch / plan.Microbatches, Position: t.Op - 1}
		if plan.Cycle[x.Position].Prime {
			x.Step++
		}
		x.Span = schedule.Span{Start: schedule.Duration(t.Start), End: schedule.Duration(t.End)}
		all = append(all, x)
	}
	return all
}
