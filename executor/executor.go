package executor

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Options are how a sequence is run.
type Options struct {
	Limit int64 // bytes of the arena, static memory included
	// HostLimit bounds the page-locked host memory, in bytes: what is offloaded, the batch and a buffer; 0: no limit.
	HostLimit int64
	// Sim is what a sequence with transfers was simulated with; others need none.
	Sim  Sim
	Seed uint64 // of the weights and of dropout
	// Updates are how often the weights of each layer were updated before; nil: never.
	Updates []int64
	// Initial keeps the initial weights for executors that start from the same ones; nil: each computes its own.
	Initial *Initial
	// MaxNorm clips the gradients to this norm, all of them together; 0: no clipping.
	MaxNorm float32
	// Parts divides a step: the sequence runs so often, each time on a batch of its own, and the weights are updated by the sum of
	// the gradients, behind the last part; 0 is 1. Every part of a batch is begun and ended like a step. The library that the
	// workload was compiled for must be models.Accumulation's.
	Parts int
	// Timed records the time of every op (Result.Ops).
	Timed bool
	// Audit stops after every op to check that it wrote only memory that its blocks own. Slow.
	Audit bool
	// Observe is called after every op, in issue order, for everything that the op left. Slow, like Audit; may be nil.
	Observe func(Observation)
	// NoGraph issues every step call by call, also on a device that could repeat it as one launch (runtime.Grapher).
	NoGraph bool

	halves bool    // the workload's backwards are in halves (Workload.halved), and the time between them is wanted
	madeUp bool    // the input is a piece of one, repeated
	probe  windows // of a measurement of the link
}

// Executor runs training steps of one sequence on one device.
//
// Invariants: after New a step allocates nothing, neither on the device nor pinned nor on the Go heap; every wait
// is an event; memory is reused only after its last reader (hazard.Check proves it before New returns).
type Executor struct {
	*Workload
	opt  Options
	dev  runtime.Device
	lib  kernels.Library
	step *bound
	eval *bound

	script  script       // of a step, or of its last part
	early   [2]script    // of the parts before: the first, whose gradients are written, and those that add to them
	heads   [2][]command // of the script, for each of the two batches
	stages  [2][]command // what copies each of them to the device ahead of its step
	waits   [][]int      // per op, the ops of other streams that it waits for
	streams [allStreams]runtime.Stream
	events  []runtime.Event
	compute runtime.Stream // one of the streams

	evalScript script // of an evaluation, behind the copies of its images

	pass       stateSlices // of offloaded state
	updates    []runtime.Launch
	updateUses []use
	uploads    []upload
	loss       int // op after which the loss is copied to the result
	host       hostSlab
	auditor    *auditor
	observer   *observer
	result     Result
	done       int // parts of the step
	turn       int // 0 or 1: which of the two batches in the host slab is the next one
	staged     int // which of them is on its way to the device, or waits there; none
	begun      time.Time
	scalars    kernels.Scalars
	updated    int64 // times; a step that is skipped updates nothing
	stopped    bool
	lossSpan   runtime.Span
}

// upload is one copy of a step's input from the host slab.
type upload struct{ dst, src runtime.Span }

// hostSlab says where the executor's page-locked memory is used for what. There are two batches, as many bytes apart as other says:
// one can be filled while a step uses the other.
type hostSlab struct {
	images, labels, scalars, result, chunk runtime.Span
	other                                  int64
	copies                                 runtime.Span // of what is offloaded
	probe                                  runtime.Span // of a measurement of the link
	bytes                                  int64
}

// chunkBytes is the size of the transfer buffer for weights and snapshots.
const chunkBytes = 1 << 20

// Result is what one step gave and took, or a part of one: the norm and the update are of the last. Its slices are valid until the next step.
type Result struct {
	Loss    float64
	Correct int     // correct predictions in the batch, before the update
	Counted int     // labels that count: all but those that are kernels.Ignored
	Norm    float64 // of all gradients together, before clipping
	// Skipped says that the norm was not finite, and that the weights and the optimizer's state are as before.
	Skipped bool
	// Sequence is the time of the sequence, Update that of the optimizer's update, Upload that of the batch's copy before them, Device
	// that of everything, all on the device, in seconds.
	Sequence, Update, Upload, Device float64
	// UpdateKernels is the time of the update without what it waited for offloaded state; StateWait is for how long the
	// step waited for such state. When Timed, in seconds.
	UpdateKernels, StateWait float64
	// Busy is how long the step's ops and the update's kernels ran, without what they waited. When Timed, in seconds.
	Busy      float64
	Seconds   float64    // wall time of the whole step as the caller sees it
	Ops       []float64  // when Timed: seconds of every op, without what it waited
	Intervals []Interval // when Timed: start and end of every op, transfers included
	// PeakBytes is the most memory that was owned while an op ran, static memory included; ExtentBytes the end of
	// the highest byte that was written. Both are measured when Options.Audit is set, else the bound step's.
	PeakBytes, ExtentBytes int64
	Live                   []int64 // when audited: bytes owned when each op started, static memory included

	firstHalves []float64 // of backwards in halves: seconds of the first one
	// HostBytes is the page-locked memory of the executor, of which CopiesBytes are for what is offloaded.
	HostBytes, CopiesBytes int64
}

// New binds a sequence to a device, which it reserves, and initializes the weights. Errors: *LimitError and
// *LayoutError, *HostLimitError and those of schedule.Simulate when it does not fit, *schedule.RuleError when the
// sequence breaks a rule, *UnusedPrefetchError, ErrAtOnce, those of the device.
func New(w *Workload, on Target, seq schedule.Sequence, opt Options) (*Executor, error) {
	e := &Executor{Workload: w, opt: opt, dev: on.Device, lib: on.Library, staged: none}
	if opt.MaxNorm > 0 && w.Offloading() == OffloadWeights {
		return nil, fmt.Errorf("%w, and clipping to a norm of %v needs the gradients of all: leave it out, or offload the optimizer's state alone", ErrAtOnce, opt.MaxNorm)
	}
	if e.parts() > 1 && w.Offloading() != OffloadNothing {
		return nil, ErrParts
	}
	var err error
	if e.step, err = w.layOut(seq, opt.Limit, opt.Sim); err != nil {
		return nil, err
	}
	e.step.adds = e.parts() > 1
	if e.eval, err = w.layoutEval(opt.Limit); err != nil {
		return nil, err
	}
	e.placeHost()
	if opt.HostLimit > 0 && e.host.bytes > opt.HostLimit {
		return nil, &HostLimitError{Limit: opt.HostLimit, Needed: e.host.bytes, Copies: e.step.copies, State: w.static.hostState.bytes}
	}
	if err := e.dev.Reserve(opt.Limit, e.host.bytes); err != nil {
		return nil, err
	}
	for _, part := range []func() error{e.prepareAll, e.write, e.writeEval, e.open, e.initialize, e.capture} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *Executor) placeHost() {
	e.host = e.hostSlab(e.step.copies, e.opt)
	e.step.slab = e.host.copies.Offset
}

// hostSlab lays out the page-locked memory: offloaded state first, where the static memory expects it.
func (w *Workload) hostSlab(copies int64, opt Options) hostSlab {
	h := hostSlab{bytes: w.static.hostState.bytes}
	take := func(bytes int64) runtime.Span {
		span := runtime.Span{Space: runtime.Host, Offset: h.bytes, Bytes: bytes}
		h.bytes += kernels.Align(bytes)
		return span
	}
	images := w.hostImages() * int64(w.Model.Wiring().Inputs())
	if opt.madeUp {
		images = min(images, chunkBytes)
	}
	h.images = take(images)
	h.labels = take(w.static.labels.Bytes)
	if !opt.madeUp {
		h.other = take(images).Offset - h.images.Offset
		take(w.static.labels.Bytes)
	}
	h.scalars = take(kernels.ScalarsBytes)
	h.result = take(w.static.result.Bytes)
	h.chunk = take(chunkBytes)
	h.copies = take(copies)
	h.probe = take(2 * opt.probe.host)
	return h
}

// HostRoom returns what a limit of host memory, 0 for none, leaves to the copies of a plan.
func (w *Workload) HostRoom(limit int64) int64 {
	if limit == 0 {
		return 0
	}
	return max(limit-w.LeastHostBytes(), 1)
}

// LeastHostBytes returns the host memory of a plan that offloads nothing: offloaded state, the batch, results and a buffer.
func (w *Workload) LeastHostBytes() int64 { return w.hostSlab(0, Options{}).bytes }

// CheckHost refuses a limit of host memory, 0 for none, that no plan of the workload can keep. Error: *HostLimitError.
func (w *Workload) CheckHost(limit int64) error {
	if least := w.LeastHostBytes(); limit > 0 && least > limit {
		return &HostLimitError{Limit: limit, Needed: least, State: w.static.hostState.bytes, Unplanned: true}
	}
	return nil
}

func (e *Executor) prepareAll() error {
	if err := e.prepare(e.step, e.lib, trainingProgram); err != nil {
		return err
	}
	if err := e.prepare(e.eval, e.lib, evalProgram); err != nil {
		return err
	}
	if e.StagedBytes() == 0 {
		e.uploads = append(e.images(e.step), upload{e.static.labels, e.host.labels})
	}
	e.findLoss()
	return e.prepareUpdates()
}

// batch returns where a span of the first batch of the host slab is in the one whose turn it is.
func (e *Executor) batch(s runtime.Span) runtime.Span {
	s.Offset += int64(e.turn) * e.host.other
	return s
}

// images returns the copies of the first batch to where a sequence reads its inputs.
func (e *Executor) images(b *bound) (all []upload) {
	bytes := e.Model.Input.Bytes()
	if e.opt.madeUp {
		for at := int64(0); at < bytes; at += chunkBytes {
			n := min(chunkBytes, bytes-at)
			all = append(all, upload{b.span(0).Part(at, n), e.host.images.Part(0, n)})
		}
		return all
	}
	for k := range e.Model.Wiring().Inputs() {
		all = append(all, upload{b.span(k).Part(0, bytes), e.host.images.Part(int64(k)*bytes, bytes)})
	}
	return all
}

// findLoss finds the first op that computes the loss, and where it leaves it.
func (e *Executor) findLoss() {
	for i, op := range e.step.layout.seq {
		if op.Layer == len(e.Layers) && op.Kind != schedule.Backward && !op.Kind.Transfer() {
			e.loss = i
			e.lossSpan = e.step.span(e.step.layout.ops[i].output).Part(0, lossBytes)
			return
		}
	}
}

func (e *Executor) prepareUpdates() error {
	if e.Offloading() != OffloadNothing {
		return e.prepareStateSlices()
	}
	if err := e.sumTied(); err != nil {
		return err
	}
	if err := e.prepareGuard(); err != nil {
		return err
	}
	var all []kernels.UpdateOperands
	for l, layer := range e.Model.Layers {
		st := &e.static.layers[l]
		for _, q := range layer.Params() {
			if !q.Trained {
				continue
			}
			bytes := q.Desc.Bytes()
			o := kernels.UpdateOperands{
				Elements: q.Desc.Elements(),
				Param:    st.params.Part(q.Value.Offset, bytes),
				Grad:     st.grads.Part(q.Grad.Offset, bytes),
				Scalars:  e.static.scalars, Workspace: e.static.workspace,
				Earlier: e.earlier(l + 1),
			}
			for k := range kernels.StatesOf(e.Optimizer, q.Matrix) {
				o.States = append(o.States, st.state(k, q))
			}
			all = append(all, q.Updates(e.Optimizer, o)...)
		}
	}
	launch, u, err := e.updateAll(all)
	if err == nil && launch != nil {
		e.update(launch, u)
	}
	return err
}

// updateAll prepares an update of all of some parameters; nil of none.
func (e *Executor) updateAll(all []kernels.UpdateOperands) (runtime.Launch, use, error) {
	if len(all) == 0 {
		return nil, use{}, nil
	}
	var uses []kernels.Use
	for _, o := range all {
		uses = append(uses, o.Uses()...)
	}
	launch, err := e.lib.PrepareUpdate(e.Optimizer, all...)
	return launch, useOf("update", uses), err
}

// prepareGuard puts a guard before the updates.
func (e *Executor) prepareGuard() error {
	o := kernels.GuardOperands{
		Partials: e.static.partials, Norm: e.static.result.Part(normAt, normBytes), Scalars: e.static.scalars,
	}
	for _, t := range e.Tensors() {
		if t.Role == "gradient" {
			o.Grads = append(o.Grads, t.span)
		}
	}
	if len(o.Grads) == 0 { // of a window
		return nil
	}
	guard, err := e.lib.PrepareGuard(kernels.Guard{MaxNorm: e.opt.MaxNorm}, o)
	e.update(guard, useOf("guard", o.Uses()))
	return err
}

// update appends a launch to those that follow the sequence.
func (e *Executor) update(l runtime.Launch, u use) {
	e.updates, e.updateUses = append(e.updates, l), append(e.updateUses, u)
}

// open makes the streams and events.
func (e *Executor) open() (err error) {
	for i, name := range [allStreams]string{"compute", "host to device", "device to host", "state to device", "state to host", "batch to device"} {
		switch i {
		case streamStateIn, streamStateOut:
			if e.Offloading() == OffloadNothing {
				continue
			}
		case streamBatch:
			if e.StagedBytes() == 0 {
				continue
			}
		}
		if e.streams[i], err = e.dev.NewStream(name); err != nil {
			return err
		}
	}
	e.compute = e.streams[streamCompute]
	e.events = make([]runtime.Event, e.script.events)
	for i := range e.events {
		if e.events[i], err = e.dev.NewEvent(); err != nil {
			return err
		}
	}
	if e.opt.Timed {
		e.result.Ops = make([]float64, len(e.step.layout.seq))
		e.result.Intervals = make([]Interval, len(e.step.layout.seq))
		e.result.firstHalves = make([]float64, len(e.step.layout.seq))
	}
	if e.opt.Audit {
		if e.auditor, err = newAuditor(e.step, e.Model.Wiring().Inputs(), e.dev, e.opt.Limit, e.host.copies); err != nil {
			return err
		}
	}
	if e.opt.Observe != nil {
		e.observer, err = newObserver(e)
	}
	return err
}

// Peak returns the most that is alive at one op of the bound step, and the end of the highest block, both with the
// static memory, in bytes.
func (e *Executor) Peak() (peak, extent int64) { return e.step.peak, e.step.extent }

// Images returns the page-locked buffer that the next step or prediction reads its images from: float32, N,H,W,C, those of one
// branch after those of the other; or tokens, int32, N,T, as the bits of float32. Where batches are staged there is Pixels instead.
func (e *Executor) Images() ([]float32, error) {
	if e.StagedBytes() > 0 {
		panic("BUG: images are bytes where batches are staged")
	}
	b, err := e.dev.HostBytes(e.batch(e.host.images))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4), nil
}

// Pixels returns what Images returns as the bytes that the palette of a staged batch is for.
func (e *Executor) Pixels() ([]uint8, error) {
	if e.StagedBytes() == 0 {
		panic("BUG: images are numbers where no batch is staged")
	}
	return e.dev.HostBytes(e.batch(e.host.images))
}

// Labels returns the page-locked buffer that the next step reads its labels from: int32, N, or of tokens N, T.
func (e *Executor) Labels() ([]int32, error) {
	b, err := e.dev.HostBytes(e.batch(e.host.labels))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), len(b)/4), nil
}

// Swap makes Images and Labels those of the other one of two batches: while a step runs, of one that it does not use.
func (e *Executor) Swap() { e.turn ^= 1 }

// Step runs one training step on the batch in Images and Labels, with step number step (from 0) and learning rate lr.
func (e *Executor) Step(step uint64, lr float32) (*Result, error) {
	if err := e.Begin(step, lr); err != nil {
		return nil, err
	}
	return e.End()
}

// parts returns how often the sequence runs in a step.
func (e *Executor) parts() int { return max(e.opt.Parts, 1) }

// Begin starts a step, or the next part of one. Until End, which must follow, Swap, what fills a batch, and Stage are the only calls.
func (e *Executor) Begin(step uint64, lr float32) error {
	if e.stopped {
		return ErrStopped
	}
	e.begun = time.Now()
	e.stopped = true // until all has gone well
	return e.failed(step, e.start(step, lr))
}

// End waits for the step that Begin started.
func (e *Executor) End() (*Result, error) {
	err := e.wait()
	if err == nil {
		err = e.collect()
	}
	if err != nil {
		return nil, e.failed(e.scalars.Step, err)
	}
	e.stopped, e.done = false, (e.done+1)%e.parts()
	e.result.Seconds = time.Since(e.begun).Seconds()
	return &e.result, nil
}

func (e *Executor) failed(step uint64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("step %d: %w", step, err)
}

// earlier returns how often the weights of a layer, from 1, were updated before.
func (e *Executor) earlier(layer int) uint64 {
	if e.opt.Updates == nil {
		return 0
	}
	return uint64(e.opt.Updates[layer-1])
}

// Updates returns how often the weights of each layer were updated, those before the first step included. As in PyTorch, where
// a step that a GradScaler skips is none of the optimizer's, a step that was skipped does not count.
func (e *Executor) Updates() []int64 {
	all := make([]int64, len(e.Model.Layers))
	for i := range all {
		all[i] = int64(e.earlier(i+1)) + e.updated
	}
	return all
}

func (e *Executor) start(step uint64, lr float32) error {
	scalars, err := e.dev.HostBytes(e.host.scalars)
	if err != nil {
		return err
	}
	e.scalars = kernels.Scalars{
		Seed: e.opt.Seed, Step: step, Microbatch: uint64(e.done), LR: lr, GradScale: 1 / float32(e.parts()), Update: uint64(e.updated),
	}
	e.scalars.Put(scalars)
	if e.auditor != nil {
		e.auditor.begin()
	}
	return e.issue()
}

// wait blocks until the step has ended.
func (e *Executor) wait() error {
	for i, s := range e.streams {
		if s == nil || i == streamBatch { // which may be at the batch of the next step
			continue
		}
		if err := s.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}

// collect reads the step's result and times.
func (e *Executor) collect() (err error) {
	b, err := e.dev.HostBytes(e.host.result)
	if err != nil {
		return err
	}
	r := &e.result
	values := unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
	r.Loss, r.Correct, r.Counted = float64(values[lossAt/4]), int(values[lossAt/4+1]), int(values[lossAt/4+2])
	if r.Norm, r.Skipped = 0, false; e.done == e.parts()-1 {
		r.Norm = e.norm(values)
		if r.Skipped = math.IsNaN(r.Norm) || math.IsInf(r.Norm, 0); !r.Skipped {
			e.updated++
		}
	}
	r.PeakBytes, r.ExtentBytes = e.step.peak, e.step.extent
	r.HostBytes, r.CopiesBytes = e.host.bytes, e.step.copies
	if r.Sequence, err = e.seconds(eventSwept, eventBegin); err != nil {
		return err
	}
	if r.Update, err = e.seconds(eventUpdated, eventSwept); err != nil {
		return err
	}
	if r.Upload, err = e.seconds(eventBegin, eventFork); err != nil {
		return err
	}
	if r.Device, err = e.seconds(eventReturned, eventFork); err != nil {
		return err
	}
	if err := errors.Join(e.collectState(), e.collectOps()); err != nil {
		return err
	}
	if a := e.auditor; a != nil {
		r.PeakBytes, r.ExtentBytes, r.Live = a.peak, a.base+a.arena.Extent(), a.owned
		return a.end()
	}
	return nil
}

// collectOps reads the times of the ops. A compute op that waits for nothing starts when the one before it has ended.
func (e *Executor) collectOps() (err error) {
	if !e.opt.Timed {
		return nil
	}
	last := 0.0
	e.result.Busy = e.result.UpdateKernels
	for p, op := range e.step.layout.seq {
		at := &e.result.Intervals[p]
		at.Start = last
		if from := e.script.from[p]; from != none {
			if at.Start, err = e.seconds(from, eventBegin); err != nil {
				return err
			}
		}
		if at.End, err = e.seconds(e.script.mark[p], eventBegin); err != nil {
			return err
		}
		e.result.Ops[p] = at.End - at.Start
		if middle := e.script.middle[p]; middle != none {
			half, err := e.seconds(middle, eventBegin)
			if err != nil {
				return err
			}
			e.result.firstHalves[p] = half - at.Start
		}
		if !op.Kind.Transfer() {
			last = at.End
			e.result.Busy += e.result.Ops[p]
		}
	}
	return nil
}

// seconds returns the time from event earlier to event later.
func (e *Executor) seconds(later, earlier int) (float64, error) {
	d, err := e.events[later].Since(e.events[earlier])
	return d.Seconds(), err
}
