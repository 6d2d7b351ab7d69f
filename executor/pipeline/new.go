package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// New binds a plan to devices, which it reserves, and initializes the weights. Device d of the plan is on[d]; with a World they are those
// of this process, in their order. Errors: ErrPlan, *LimitError, *executor.HostLimitError, those of pipeline.Planned, of the devices and
// of the World.
func New(w *Workload, on []executor.Target, costs Costs, plan *pipeline.Plan, opt Options) (*Executor, error) {
	if err := checkFeed(w, opt.Feed); err != nil {
		return nil, err
	}
	e, err := newProved(w, on, costs, plan, opt)
	if err != nil {
		return nil, err
	}
	if err := inOrder(e.forgetDryRuns, e.audit, e.capture, e.initialize); err != nil {
		return nil, err
	}
	return e, nil
}

// newProved returns an executor that has the proved tables of all devices, those of other processes too.
func newProved(w *Workload, on []executor.Target, costs Costs, plan *pipeline.Plan, opt Options) (*Executor, error) {
	e := &Executor{compilation: &compilation{layout: &layout{Workload: w, opt: opt}}, reports: &reports{}, done: opt.Past.Minibatches}
	e.stopping.thawed = sync.NewCond(&e.stopping.mu)
	devices := len(on)
	if opt.World != nil {
		devices = costs.Platform.Devices
	}
	if err := e.layOut(costs, plan, devices); err != nil {
		return nil, err
	}
	on, err := e.places(on, devices)
	if err != nil {
		return nil, err
	}
	if opt.Past.Minibatches < 0 || plan.IsFlush() && opt.Past.Minibatches%e.group != 0 {
		return nil, fmt.Errorf("%w: it goes on behind %d microbatches, %d make a step", order.ErrPlan, opt.Past.Minibatches, e.group)
	}
	if err := e.checkLinks(costs, plan); err != nil {
		return nil, err
	}
	if err := e.openDrivers(on); err != nil {
		return nil, err
	}
	for _, d := range e.drivers {
		d.reports = e.reports
	}
	if err := inOrder(e.openChannels, e.compile, e.openWays, e.openSums, e.separate, e.prove); err != nil {
		return nil, err
	}
	return e, nil
}

// openDrivers binds the drivers to their devices.
func (comp *compilation) openDrivers(on []executor.Target) error {
	for _, d := range comp.drivers {
		lib := on[d.Number].Library
		if comp.opt.Pace != nil {
			lib = simulated()
		}
		d.Dev, d.binder = on[d.Number].Device, newBinder(d.Number, lib, comp.Optimizer)
		switch t := d.cyclicStage(); {
		case comp.order.Plan.HostState && (comp.opt.Pace != nil || !comp.opt.World.has(d.Number)): // a simulated device, or one elsewhere, computes nothing
			d.binder.onHost = lib
		case comp.order.Plan.HostState, t != nil && t.cyclic.updatesOnHost():
			var err error
			if d.binder.onHost, err = updater(on[d.Number]); err != nil {
				return err
			}
		}
		d.opened = &comp.streams
		if err := d.open(comp.opt.limit(d.Number), comp.memory[d.Number]); err != nil {
			return err
		}
	}
	return nil
}

// Needs returns the memory that a plan needs on each device. Errors: those of New that do not come from devices.
func Needs(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) ([]Memory, error) {
	lay := &layout{Workload: w, opt: opt}
	err := lay.layOut(costs, plan, costs.Platform.Devices)
	if err == nil && (plan.IsCycle() || plan.HostState) {
		for _, d := range lay.drivers {
			lay.memory[d.Number].Host = d.layHost()
		}
	}
	return lay.memory, err
}

// Grouping returns how many minibatches make one update of a plan, as Executor.Group does, without devices and a layout. Errors: those of
// Needs.
func Grouping(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) (int, error) {
	lay := &layout{Workload: w, opt: opt}
	err := findOrder(lay, costs, plan, costs.Platform.Devices)
	return lay.group, err
}

// open reserves the device's memory and makes streams and events.
func (d *driver) open(limit int64, m Memory) (err error) {
	if limit > 0 && m.Extent > limit {
		return &LimitError{Device: d.Number, Needed: m.Extent, Limit: limit, Static: m.Static}
	}
	if d.hostBytes = d.layHost(); d.lay.opt.HostLimit > 0 && d.hostBytes > d.lay.opt.HostLimit {
		return &executor.HostLimitError{Limit: d.lay.opt.HostLimit, Needed: d.hostBytes, Copies: m.Offloaded}
	}
	if err := d.Dev.Reserve(max(limit, m.Extent), d.hostBytes); err != nil {
		if d.saver != nil {
			err = fmt.Errorf("%w; %s of host memory are for its state while that is saved", err, units.Bytes(m.Snapshot))
		}
		return err
	}
	if err := d.openStreams(); err != nil {
		return err
	}
	d.watch = newStopwatch(d, d.lay.opt.Timed)
	if d.lay.opt.Pace != nil {
		d.paced = pausesOf(d.stages, d.lay.opt.Pace)
	}
	if err := d.saver.open(); err != nil {
		return err
	}
	if err := d.guard.open(d.Dev); err != nil {
		return err
	}
	if t := d.ringed(); t != nil {
		if err := d.openTransfers(t); err != nil {
			return err
		}
		if err := t.ring.open(d.Dev); err != nil {
			return err
		}
		d.joined = make([]runtime.Event, len(d.queues()))
		if err := makeEvents(d.Dev, each(d.joined)...); err != nil {
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
	return errors.Join(openBatches(d), d.openEvents(), openHostState(d), d.openObserver())
}

// openStreams makes the streams for compute, for what goes to other devices, and for sums.
func (d *driver) openStreams() (err error) {
	if d.compute, err = d.newQueue("compute"); err != nil {
		return err
	}
	d.links = map[int]table.Queue{}
	for _, l := range d.lay.channels {
		if _, have := d.links[l.to]; l.from != d.Number || have {
			continue
		}
		if d.links[l.to], err = d.newQueue(fmt.Sprintf("to device %d", l.to)); err != nil {
			return err
		}
	}
	if d.adds() {
		d.adding, err = d.newQueue("sums over replicas")
	}
	return err
}

// adds reports whether the device adds gradients of other replicas to its own when the plan says so.
func (d *driver) adds() bool {
	return slices.ContainsFunc(d.stages, func(t *localStage) bool {
		return t != nil && (d.lay.collectives[t.stage] != nil || t.sums != nil && (t.sums.at > 0 || t.sums.Divided()))
	})
}

func (d *driver) openEvents() error {
	if err := d.recorder.open(d.Dev); err != nil {
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
		events = append(append(events, &t.summed, &t.summedAll, &t.renewed), t.sums.events()...)
		for _, b := range t.sendBuffers() {
			events = append(events, b.events()...)
		}
		for i := range d.slots() {
			events = append(events, &d.staging[s].uploaded[i], &d.staging[s].returned[i])
		}
	}
	return makeEvents(d.Dev, events...)
}

// Holds returns the memory that minibatches and their tasks hold, by device. A stage with transfers has its memory for itself
// throughout, and no holds. Arguments and errors are those of Needs.
func Holds(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) ([][]Hold, error) {
	lay := &layout{Workload: w, opt: opt}
	if err := lay.layOut(costs, plan, costs.Platform.Devices); err != nil {
		return nil, err
	}
	return lay.holds, nil
}

// compile lets the drivers go through a run without issuing it, and makes their tables of it. With a flush the run is a step, else it
// is long enough to see everything repeat itself. Errors: ErrPlan when the drivers wait for each other, or repeat nothing.
func (comp *compilation) compile() error {
	if comp.order.Plan.IsFlush() {
		if err := comp.dryRun(comp.group); err != nil {
			return err
		}
		comp.recorded = comp.group
		_, err := comp.fold(comp.group)
		return err
	}
	for n := max(firstDryRun, comp.order.Long(), firstUpdates*comp.group); n <= max(longestDryRun, longestUpdates*comp.group); n *= 2 {
		length := (n + comp.group - 1) / comp.group * comp.group
		if err := comp.dryRun(length); err != nil {
			return err
		}
		comp.recorded = length
		if ok, err := comp.fold(length); err != nil || ok {
			return err
		}
	}
	return fmt.Errorf("%w: with updates of %d minibatches, what its devices do does not repeat itself within %d minibatches: take updates of fewer minibatches, or weight versions stash", order.ErrPlan, comp.group, comp.recorded)
}

// fold makes the tables of all drivers of their recordings of so many minibatches; false: they do not repeat themselves. Errors: ErrPlan.
func (comp *compilation) fold(minibatches int) (ok bool, err error) {
	for _, d := range comp.drivers {
		if ok, err := d.compiler.fold(comp.seen(minibatches)); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// audit runs a step of blank images with weights that are 0, before there are others, and audits it. Errors: *TaskError, of what a
// kernel wrote that nobody held with a *canary.WrittenError; ErrNotInspectable; ErrPlan without a flush.
func (e *Executor) audit() error {
	if !e.opt.Audit {
		return nil
	}
	for _, d := range e.own() {
		if err := d.openAudit(); err != nil {
			return err
		}
	}
	opt := e.opt
	e.opt.Feed, e.opt.Rate, e.opt.Done, e.opt.Observe = blank{}, func(int) float32 { return 0 }, nil, nil
	steps := 1
	if e.order.Plan.IsCycle() {
		steps = auditedSteps
	}
	err := e.Run(context.Background(), steps*e.group)
	e.opt, e.done = opt, opt.Past.Minibatches
	for _, d := range e.own() {
		d.table.DropAudits()
		d.guard.forget()
	}
	return err
}
