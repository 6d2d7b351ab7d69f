package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/runtime"
)

// driver plays the table of one device.
type driver struct {
	e       *Executor
	device  int
	dev     runtime.Device
	binder  *binder
	stages  []*localStage // by stage; nil where the device has no part of it
	compute queue
	links   map[int]queue // by receiver
	adding  queue         // of gradients of other replicas

	toHost, fromHost queue           // of a stage with transfers
	batches          queue           // of images that come ahead
	incoming         []queue         // of messages from other processes
	joined           []runtime.Event // by stream, of a stage with transfers
	updating         queue           // of updates in host memory

	staging    []staging // by stage
	hostBytes  int64     // of page-locked memory
	chunk      runtime.Span
	halfDuplex map[int]*halfDuplex // by peer, of links that carry one message at a time
	watch      *stopwatch
	paced      map[taskKey]runtime.Launch // in place of kernels, in simulated time; nil else
	done       int                        // minibatches of all runs and segments before the one that it is in
	saver      *saver                     // nil when nothing is saved
	guard      *guard                     // nil without a flush
	step       *stepLayout                // of a plan with a flush
	auditor    *auditor                   // of a step; nil: nothing is audited
	observer   *observer                  // of every step; nil: nothing is observed
	recorder   recorder                   // of what it issued
	current    *record                    // of the task that it is in
	compiler   *compiler                  // that makes the table
	table      *table                     // of a period
	now        instance                   // what it issues
	progress   progress                   // likewise, for whoever watches
}

// open reserves the device's memory and makes streams and events.
func (d *driver) open(limit int64, m Memory) (err error) {
	if limit > 0 && m.Extent > limit {
		return &LimitError{Device: d.device, Needed: m.Extent, Limit: limit, Static: m.Static}
	}
	if d.hostBytes = d.layHost(); d.e.opt.HostLimit > 0 && d.hostBytes > d.e.opt.HostLimit {
		return &executor.HostLimitError{Limit: d.e.opt.HostLimit, Needed: d.hostBytes, Copies: m.Offloaded}
	}
	if err := d.dev.Reserve(max(limit, m.Extent), d.hostBytes); err != nil {
		if d.saver != nil {
			err = fmt.Errorf("%w; %s of host memory are for its state while that is saved", err, units.Bytes(m.Snapshot))
		}
		return err
	}
	if d.compute, err = d.newQueue("compute"); err != nil {
		return err
	}
	d.links = map[int]queue{}
	d.watch = newStopwatch(d, d.e.opt.Timed)
	if d.e.opt.Pace != nil {
		d.paced = d.pauses(d.e.opt.Pace)
	}
	for _, l := range d.e.channels {
		if _, have := d.links[l.to]; l.from != d.device || have {
			continue
		}
		if d.links[l.to], err = d.newQueue(fmt.Sprintf("to device %d", l.to)); err != nil {
			return err
		}
	}
	if d.adds() {
		if d.adding, err = d.newQueue("sums over replicas"); err != nil {
			return err
		}
	}
	if err := d.saver.open(); err != nil {
		return err
	}
	if err := d.guard.open(d.dev); err != nil {
		return err
	}
	if t := d.ringed(); t != nil {
		if err := d.openTransfers(t); err != nil {
			return err
		}
		if err := t.ring.open(d.dev); err != nil {
			return err
		}
		d.joined = make([]runtime.Event, len(d.queues()))
		if err := makeEvents(d.dev, each(d.joined)...); err != nil {
			return err
		}
	}
	if err := d.step.open(d); err != nil {
		return err
	}
	if t := d.cyclicStage(); t != nil {
		if err := t.cyclic.open(d); err != nil {
			return err
		}
	}
	return errors.Join(openBatches(d), d.openEvents(), d.openObserver())
}

// adds reports whether the device adds gradients of other replicas to its own when the plan says so.
func (d *driver) adds() bool {
	return slices.ContainsFunc(d.stages, func(t *localStage) bool {
		return t != nil && (d.e.collectives[t.stage] != nil || t.sums != nil && (t.sums.at > 0 || t.sums.divided()))
	})
}

func (d *driver) openEvents() error {
	if err := d.recorder.open(d.dev); err != nil {
		return err
	}
	var events []*runtime.Event
	for s, t := range d.stages {
		if t == nil {
			continue
		}
		for i := range t.slabs {
			events = append(events, &t.slabs[i].forward)
		}
		events = append(append(events, &t.summed, &t.summedAll), t.sums.events()...)
		for _, b := range t.sendBuffers() {
			events = append(events, b.events()...)
		}
		for i := range d.slots() {
			events = append(events, &d.staging[s].uploaded[i], &d.staging[s].returned[i])
		}
	}
	return makeEvents(d.dev, events...)
}

// each returns where the events of a list go.
func each(list []runtime.Event) (all []*runtime.Event) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// makeEvents makes those events that there are not yet.
func makeEvents(dev runtime.Device, events ...*runtime.Event) (err error) {
	for _, ev := range events {
		if *ev == nil {
			if *ev, err = dev.NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin prepares for a run.
func (d *driver) begin() {
	d.recorder.begin()
	d.guard.begin()
	d.follow(d.e.done)
}

// numbers refills list with 0..n-1.
func numbers(list []int, n int) []int {
	list = list[:0]
	for i := range n {
		list = append(list, i)
	}
	return list
}

// pop takes the first entry of a list: that which has been in it longest, so that all are taken in turn.
func pop(list *[]int) int {
	i := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return i
}

// ringed returns the stage of the device that has a ring, which is then its only one; nil: none has.
func (d *driver) ringed() *localStage {
	for _, t := range d.stages {
		if t != nil && t.ring != nil {
			return t
		}
	}
	return nil
}

// cyclicStage returns the stage of the device in a cyclic plan; nil in others.
func (d *driver) cyclicStage() *localStage {
	for _, t := range d.stages {
		if t != nil && t.cyclic != nil {
			return t
		}
	}
	return nil
}

func (d *driver) failed(v instance, err error) error {
	if te := (*TaskError)(nil); errors.As(err, &te) {
		return err
	}
	return &TaskError{Device: d.device, Task: v.name(), Minibatch: d.done + v.minibatch, Err: err}
}

// finish waits for everything but the batch of the next run, whose failure is that run's.
func (d *driver) finish() error {
	for _, q := range d.queues() {
		if q == d.batches && d.step != nil {
			continue
		}
		if err := q.s.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}

// queues returns all streams, the one of compute first.
func (d *driver) queues() []queue {
	all := []queue{d.compute}
	for _, to := range slices.Sorted(maps.Keys(d.links)) {
		all = append(all, d.links[to])
	}
	for _, q := range []queue{d.toHost, d.fromHost, d.batches, d.adding, d.updating} {
		if q.s != nil {
			all = append(all, q)
		}
	}
	return all
}
