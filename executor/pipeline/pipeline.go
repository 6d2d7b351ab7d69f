// Package pipeline runs pipeline plans: every stage on its device, each device with a driver of its own that issues the
// device's tasks in the plan's order, on one stream for compute and one for every device that it sends to.
//
// Drivers share nothing but messages and events: a receiver grants a block of its arena, the sender copies into it and says
// which minibatch has arrived. Streams wait for events alone. Nobody keeps time, and nobody polls.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Workload is a compiled model with its optimizer.
type Workload = executor.Workload

// Compile compiles a model for libraries that need the same workspaces as lib, which add gradients to others, too. Errors: those of
// executor.Compile.
func Compile(m *models.Model, lib kernels.Library, opt kernels.Update) (*Workload, error) {
	return executor.Compile(m, models.Accumulation(lib), opt)
}

// Costs are what a plan was made with.
type Costs struct {
	Chain    *chain.Chain
	Platform *pipeline.Platform
}

// Result is what one minibatch, or microbatch, gave.
type Result struct {
	Minibatch int
	Loss      float64
	Correct   int
	Counted   int // labels that count, as in executor.Result
	// Norm is that of all gradients of the step together, before clipping, with the last microbatch of a step of a plan that
	// flushes; else NaN.
	Norm float64
	// Skipped says, likewise, that the norm is not finite, and that the weights and the optimizer's state are as before.
	Skipped bool
}

// Options are how a plan is run.
type Options struct {
	Feed Feed
	Seed uint64 // of the weights and of dropout
	// First is how many minibatches were done before, by a run that this one goes on from: of a plan with a flush whole steps, else
	// any number, whatever plan they had.
	First int
	// Updates are how often the weights of each layer were updated before; nil: as often as this plan updates them in First
	// minibatches.
	Updates []int64
	// Rate is the learning rate of a step, from 0: of a plan with a flush, or of the minibatch with which an update begins.
	Rate func(step int) float32
	// PipeMare corrects weight versions "latest" for their delays; nil: no correction.
	PipeMare *PipeMare
	// DeferredBatchNorm lets BatchNorm's running statistics move once for each step of a plan that flushes, by the mean and
	// the variance of the whole minibatch, rather than once for each microbatch.
	DeferredBatchNorm bool
	// MaxNorm clips the gradients of a step to this norm, all of them together; 0: no clipping. Only plans that flush can.
	MaxNorm float32
	// Limits are the bytes of each device's arena; nil or 0: as much as the plan needs.
	Limits []int64
	// HostLimit bounds the page-locked memory of each device, in bytes; 0: no limit.
	HostLimit int64
	// Group is how many minibatches make one update of a double buffered plan; 0: the plan's microbatches, or else as few
	// as two versions allow.
	Group int
	// Early reports whether the batch of a minibatch may be asked for while the step before it runs: a later run is to begin with it. Only
	// plans that run a sequence ask for batches early; nil: none does.
	Early func(minibatch int) bool
	// Save takes what a device has of the state behind a segment that says so (Segment.Save), stage by stage, on a goroutine
	// of the device while training goes on. A device has page-locked memory for one state: where its next one comes before
	// Save is done with it, the device waits. It may be nil.
	Save func(*Snapshot)
	// Done is called for every minibatch when its loss is known, one call at a time, in the order in which the last stage
	// works, or each of its devices; it may be nil.
	Done func(Result)
	// Patience ends a run with a *StuckError when nothing has happened on any device for so long; 0: never. Of a device
	// that does not tell what its streams do (Dump), only what is issued is seen.
	Patience time.Duration
	// Pace gives tasks fixed durations: simulated time. May be nil.
	Pace Pace
	// World is the processes that run the plan together; nil: this one alone.
	World *World
	// AllReduce lets World's transport add up the gradients of stages whose replicas are in different processes.
	AllReduce bool
	// NoGraph issues the steps of a plan that flushes call by call, also on devices that could repeat tasks as graphs
	// (runtime.Grapher).
	NoGraph bool
	// Audit lets New run a step of a plan that flushes that stops behind every op to check that only memory that minibatches in
	// flight and ops hold was written (Audited). It leaves nothing behind.
	Audit bool
	// Observe is called behind every op of a sequence on one device, for everything that the op left. It is slow, like Audit; it may be nil.
	Observe func(Observation)
	// Timed records when every task ran (Timings); nil: nothing is recorded.
	Timed *Timed
}

// Timed says what is recorded of when tasks ran.
type Timed struct {
	Periods int  // of the plan, that the records go back, about; 0: to the beginning of the run
	Ops     bool // of the last step of a run with a flush every op is recorded, too, every transfer and what brings batches
}

// Executor trains with one plan.
//
// Invariants: memory is placed before the first minibatch; between runs the pipeline is empty, every stage has done the same
// minibatches and its latest weights are in slot 0.
type Executor struct {
	*Workload
	opt           Options
	order         *order
	rules         []rule        // by stage
	delays        []float64     // by stage, where PipeMare corrects them
	discrepancies []discrepancy // by stage
	reducers      []*reducer    // by stage; nil for those on one device
	collectives   []*collective // by stage; nil for those whose gradients no library adds up
	squares       []squares     // by stage
	group         int
	halfDuplex    map[[2]int]*halfDuplex // of the links, by their ends
	channels      []*channel
	drivers       []*driver
	streams       int // of all drivers
	recorded      int // minibatches of the latest dry run
	launches      int // that are opened, counted down
	memory        []Memory
	holds         [][]Hold // by device
	done          int      // minibatches
	stopped       bool
	telling       sync.Mutex // Options.Done
	saving        sync.WaitGroup
	writing       atomic.Int64 // of what saves, how many wait for a disk
	stopping      stopping
	tensors       []placed
	byName        map[name]int // of tensors
	gradients     []placed     // of a sequence on one device
	evaluations   []*evaluation
}

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

// inOrder calls functions until one returns an error.
func inOrder(parts ...func() error) error {
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// newProved returns an executor that has the proved tables of all devices, those of other processes too.
func newProved(w *Workload, on []executor.Target, costs Costs, plan *pipeline.Plan, opt Options) (*Executor, error) {
	e := &Executor{Workload: w, opt: opt, done: opt.First}
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
	if opt.First < 0 || plan.IsFlush() && opt.First%e.group != 0 {
		return nil, fmt.Errorf("%w: it goes on behind %d microbatches, %d make a step", ErrPlan, opt.First, e.group)
	}
	if err := e.checkLinks(costs, plan); err != nil {
		return nil, err
	}
	if err := e.openDrivers(on); err != nil {
		return nil, err
	}
	if err := inOrder(e.openChannels, e.compile, e.openWays, e.openSums, e.separate, e.prove); err != nil {
		return nil, err
	}
	return e, nil
}

// openDrivers binds the drivers to their devices.
func (e *Executor) openDrivers(on []executor.Target) error {
	for _, d := range e.drivers {
		lib := on[d.device].Library
		if e.opt.Pace != nil {
			lib = simulated()
		}
		d.dev, d.binder = on[d.device].Device, newBinder(d.device, lib, e.Optimizer)
		if t := d.cyclicStage(); t != nil && t.cyclic.updatesOnHost() {
			var err error
			if d.binder.onHost, err = updater(on[d.device]); err != nil {
				return err
			}
		}
		if err := d.open(e.limit(d.device), e.memory[d.device]); err != nil {
			return err
		}
	}
	return nil
}

// Needs returns what a plan needs on each device. Errors: those of New that do not come from devices.
func Needs(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) ([]Memory, error) {
	e := &Executor{Workload: w, opt: opt}
	err := e.layOut(costs, plan, costs.Platform.Devices)
	if err == nil && plan.IsCycle() {
		for _, d := range e.drivers {
			e.memory[d.device].Host = d.layHost()
		}
	}
	return e.memory, err
}

// Grouping returns how many minibatches make one update of a plan, as Executor.Group does, without devices. Errors: those of
// Needs.
func Grouping(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) (int, error) {
	e := &Executor{Workload: w, opt: opt}
	err := e.layOut(costs, plan, costs.Platform.Devices)
	return e.group, err
}

// Group returns how many minibatches make one update.
func (e *Executor) Group() int { return e.group }

// HostBytes returns how much page-locked memory the devices have together.
func (e *Executor) HostBytes() (bytes int64) {
	for _, d := range e.drivers {
		bytes += d.hostBytes
	}
	return bytes
}

// Updates returns how often the weights of each layer were updated, between runs, those before the first run included.
func (e *Executor) Updates() []int64 { return e.updates(e.done, e.own()[0].skipped()) }

// Done returns how many minibatches were done.
func (e *Executor) Done() int { return e.done }

// Segment is a part of a run, from an empty pipeline to an empty one.
type Segment struct {
	Minibatches int  // a multiple of Group
	Save        bool // Options.Save takes the state behind it
}

// runningSegment is a segment while it runs.
type runningSegment struct {
	*bound
	save bool
}

func start(segments []Segment) (running []runningSegment) {
	for _, s := range segments {
		running = append(running, runningSegment{newBound(s.Minibatches), s.Save})
	}
	return running
}

// lowerBounds ends a run early. Whoever has begun a segment has relied on all of those before, so that only the last one that
// was begun can become shorter; those behind it, which go first, become empty.
func lowerBounds(running []runningSegment, group int) {
	for _, l := range slices.Backward(running) {
		l.lower(group)
	}
}

// Run sends the next n minibatches through the pipeline, from empty to empty. n is a multiple of Group. When ctx ends, or a
// device fails, all drivers stop and the executor with them. Errors: *TaskError, ErrPlan, ErrStopped, the context's.
func (e *Executor) Run(ctx context.Context, n int) error {
	return e.RunUntil(ctx, nil, Segment{Minibatches: n})
}

// RunUntil is Run for one segment after the other, to the last bit. But devices do not wait for each other in between: each
// begins a segment as soon as its own part of the one before is done. Once enough is closed it ends early: then no minibatch
// enters but those that complete the update of the last one that is on its way, and the pipeline empties. Done tells how many
// were done, a multiple of Group; what they leave is what Run leaves with as many. Errors: those of Run, ErrEnough.
func (e *Executor) RunUntil(ctx context.Context, enough <-chan struct{}, segments ...Segment) error {
	if e.stopped {
		return ErrStopped
	}
	for _, s := range segments {
		if s.Minibatches < 1 || s.Minibatches%e.group != 0 {
			return fmt.Errorf("%w: %d minibatches, %d make one update", ErrPlan, s.Minibatches, e.group)
		}
	}
	running, over := start(segments), make(chan struct{})
	if err := e.stopping.enter(running, e.group); err != nil {
		return err
	}
	defer e.stopping.leave()
	e.stopped = true // unless all goes well
	defer close(over)
	go func() {
		select {
		case <-enough:
			lowerBounds(running, e.group)
		case <-over:
		}
	}()
	if err := e.pass(ctx, running); err != nil {
		return err
	}
	for _, l := range running {
		e.done += l.end()
	}
	e.stopped = false
	return nil
}

// reset frees what drivers share before a run.
func (e *Executor) reset() {
	for _, l := range e.channels {
		l.reset()
	}
	for _, b := range e.halfDuplex {
		b.reset()
	}
}

// pass lets all drivers go through some segments.
func (e *Executor) pass(ctx context.Context, running []runningSegment) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.reset()
	for _, d := range e.own() {
		d.begin()
	}
	var all sync.WaitGroup
	own := e.own()
	errs := make([]error, len(own))
	for i, d := range own {
		all.Go(func() {
			if errs[i] = d.guarded(func() error { return d.run(ctx, running) }); errs[i] != nil {
				cancel(errs[i])
				e.fail(errs[i])
			}
		})
	}
	if err := e.await(&all, cancel, e.opt.Patience); err != nil {
		e.fail(err)
		return err
	}
	err := context.Cause(ctx) // also of who has seen a bad result behind the last task
	if err == nil {
		return errors.Join(errs...)
	}
	err = e.blame(err)
	e.halt()
	return err
}

// halt waits until the streams have run what was issued before a failure: nothing goes on behind a run's back. Their errors
// are known.
func (e *Executor) halt() {
	for _, d := range e.own() {
		for _, q := range append(d.queues(), d.incoming...) {
			_ = q.s.Synchronize()
		}
	}
}

// driver returns that of a device.
func (e *Executor) driver(device int) *driver {
	return e.drivers[slices.IndexFunc(e.drivers, func(d *driver) bool { return d.device == device })]
}

// drain empties a channel of Go.
func drain[T any](c chan T) {
	for len(c) > 0 {
		<-c
	}
}

// reset empties a channel and grants all its blocks.
func (l *channel) reset() {
	drain(l.grants)
	drain(l.arrivals)
	l.early = l.early[:0]
	for i := range l.blocks {
		drain(l.free[i])
		drain(l.sent[i])
		l.deliveries[i] = l.deliveries[i][:0]
		if !l.asked {
			l.grants <- i
			l.free[i] <- struct{}{}
		}
	}
}
