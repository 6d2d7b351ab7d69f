package executor

import (
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
	Limit int64  // bytes of the arena, static memory included
	Seed  uint64 // of the weights and of dropout
	// MaxNorm clips the gradients to this norm, all of them together; 0: no clipping.
	MaxNorm float32
	// Timed records the time of every op (Result.Ops).
	Timed bool
	// Audit stops after every op to check that it wrote only memory that its blocks own. Slow; needs a device
	// whose arena can be read in place.
	Audit bool
	// Observe is called after every op, in issue order, for everything that the op left. Slow, like Audit; may be nil.
	Observe func(Observation)
}

// Executor runs training steps of one sequence on one device.
//
// Invariants: after New a step allocates nothing, neither on the device nor pinned nor on the Go heap; every wait
// is an event; memory is reused only after its last reader (checkOrder proves it before New returns).
type Executor struct {
	*Workload
	opt  Options
	dev  runtime.Device
	lib  kernels.Library
	step *bound
	eval *bound

	compute, toDevice, toHost runtime.Stream
	ready, done, returned     runtime.Event
	begin, swept, updated     runtime.Event
	marks                     []runtime.Event // when Timed: the end of every op

	updates  []runtime.Launch
	uploads  []upload
	loss     int // op after which the loss is copied to the result
	host     hostSlab
	auditor  *auditor
	observer *observer
	result   Result
	scalars  kernels.Scalars
	stopped  bool
	opTimes  []float64
	lossSpan runtime.Span
}

// upload is one copy of a step's input from the host slab.
type upload struct{ dst, src runtime.Span }

// hostSlab says where the executor's page-locked memory is used for what.
type hostSlab struct {
	images, labels, scalars, result, chunk runtime.Span
	bytes                                  int64
}

// chunkBytes is the size of the transfer buffer for weights and snapshots.
const chunkBytes = 1 << 20

// Result is what one step gave and took. Ops is valid until the next step.
type Result struct {
	Loss    float64
	Correct int     // correct predictions in the batch, before the update
	Norm    float64 // of all gradients together, before clipping
	// Skipped says that the norm was not finite, and that the weights and the optimizer's state are as before.
	Skipped bool
	// Sequence is the time of the sequence, Update that of the optimizer's update, both on the device, in seconds.
	Sequence, Update float64
	Seconds          float64   // wall time of the whole step as the caller sees it
	Ops              []float64 // when Timed: seconds of every op
	// PeakBytes is the most memory that was owned while an op ran, static memory included; ExtentBytes the end of
	// the highest byte that was written. Both are measured when Options.Audit is set, else the bound step's.
	PeakBytes, ExtentBytes int64
	Live                   []int64 // when audited: bytes owned while each op ran, static memory included
}

// New binds a sequence to a device, which it reserves, and initializes the weights. Errors: *LimitError and
// *LayoutError when it does not fit, *schedule.RuleError when the sequence breaks a rule, those of the device.
func New(w *Workload, on Target, seq schedule.Sequence, opt Options) (*Executor, error) {
	e := &Executor{Workload: w, opt: opt, dev: on.Device, lib: on.Library}
	var err error
	if e.step, err = w.layout(seq, opt.Limit); err != nil {
		return nil, err
	}
	if e.eval, err = w.layoutEval(opt.Limit); err != nil {
		return nil, err
	}
	e.placeHost()
	if err := e.dev.Reserve(opt.Limit, e.host.bytes); err != nil {
		return nil, err
	}
	for _, part := range []func() error{e.prepareAll, e.open, e.checkOrder, e.initialize} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *Executor) placeHost() {
	take := func(bytes int64) runtime.Span {
		span := runtime.Span{Space: runtime.Host, Offset: e.host.bytes, Bytes: bytes}
		e.host.bytes += kernels.Align(bytes)
		return span
	}
	e.host.images = take(e.Model.Input.Bytes())
	e.host.labels = take(e.static.labels.Bytes)
	e.host.scalars = take(kernels.ScalarsBytes)
	e.host.result = take(e.static.result.Bytes)
	e.host.chunk = take(chunkBytes)
}

func (e *Executor) prepareAll() error {
	if err := e.prepare(e.step, e.lib, trainingProgram); err != nil {
		return err
	}
	if err := e.prepare(e.eval, e.lib, evalProgram); err != nil {
		return err
	}
	input := e.step.span(0)
	input.Bytes = e.Model.Input.Bytes()
	e.uploads = []upload{{input, e.host.images}, {e.static.labels, e.host.labels}, {e.static.scalars, e.host.scalars}}
	e.findLoss()
	return e.prepareUpdates()
}

// findLoss finds the first op that computes the loss, and where it leaves it.
func (e *Executor) findLoss() {
	for i, op := range e.step.tape.seq {
		if op.Layer == len(e.Layers) && op.Kind != schedule.Backward {
			e.loss = i
			e.lossSpan = part(e.step.span(e.step.tape.ops[i].output), 0, lossBytes)
			return
		}
	}
}

func (e *Executor) prepareUpdates() error {
	if err := e.prepareGuard(); err != nil {
		return err
	}
	for l, layer := range e.Model.Layers {
		st := &e.static.layers[l]
		for _, q := range layer.Params() {
			if !q.Trained {
				continue
			}
			bytes := q.Desc.Bytes()
			o := kernels.UpdateOperands{
				Elements: q.Desc.Elements(),
				Param:    part(st.params, q.Value.Offset, bytes),
				Grad:     part(st.grads, q.Grad.Offset, bytes),
				Scalars:  e.static.scalars,
			}
			for _, s := range st.states {
				o.States = append(o.States, part(s, q.Grad.Offset, bytes))
			}
			launch, err := e.lib.PrepareUpdate(e.Optimizer, o)
			if err != nil {
				return fmt.Errorf("update of %s: %w", q.Name, err)
			}
			e.updates = append(e.updates, launch)
		}
	}
	return nil
}

// prepareGuard puts a guard before the updates.
func (e *Executor) prepareGuard() error {
	o := kernels.GuardOperands{
		Partials: e.static.partials, Norm: part(e.static.result, normAt, normBytes), Scalars: e.static.scalars,
	}
	for _, t := range e.Tensors() {
		if t.Role == "gradient" {
			o.Grads = append(o.Grads, t.span)
		}
	}
	guard, err := e.lib.PrepareGuard(kernels.Guard{MaxNorm: e.opt.MaxNorm}, o)
	e.updates = append(e.updates, guard)
	return err
}

// open makes the streams and events.
func (e *Executor) open() (err error) {
	for _, s := range []struct {
		at   *runtime.Stream
		name string
	}{{&e.compute, "compute"}, {&e.toDevice, "host to device"}, {&e.toHost, "device to host"}} {
		if *s.at, err = e.dev.NewStream(s.name); err != nil {
			return err
		}
	}
	events := []*runtime.Event{&e.ready, &e.done, &e.returned, &e.begin, &e.swept, &e.updated}
	if e.opt.Timed {
		e.marks = make([]runtime.Event, len(e.step.tape.seq))
		e.opTimes = make([]float64, len(e.marks))
		for i := range e.marks {
			events = append(events, &e.marks[i])
		}
	}
	for _, ev := range events {
		if *ev, err = e.dev.NewEvent(); err != nil {
			return err
		}
	}
	if e.opt.Audit {
		if e.auditor, err = newAuditor(e.step, e.dev, e.opt.Limit); err != nil {
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

// Images returns the page-locked buffer that the next step reads its images from: float32, N,H,W,C.
func (e *Executor) Images() ([]float32, error) {
	b, err := e.dev.HostBytes(e.host.images)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4), nil
}

// Labels returns the page-locked buffer that the next step reads its labels from: int32, N.
func (e *Executor) Labels() ([]int32, error) {
	b, err := e.dev.HostBytes(e.host.labels)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), len(b)/4), nil
}

// Step runs one training step on the batch in Images and Labels, with step number step (from 0) and learning rate lr.
func (e *Executor) Step(step uint64, lr float32) (*Result, error) {
	if e.stopped {
		return nil, ErrStopped
	}
	start := time.Now()
	e.stopped = true // unless all goes well
	if err := e.run(step, lr); err != nil {
		return nil, fmt.Errorf("step %d: %w", step, err)
	}
	e.stopped = false
	e.result.Seconds = time.Since(start).Seconds()
	return &e.result, nil
}

func (e *Executor) run(step uint64, lr float32) error {
	scalars, err := e.dev.HostBytes(e.host.scalars)
	if err != nil {
		return err
	}
	e.scalars = kernels.Scalars{Seed: e.opt.Seed, Step: step, LR: lr, GradScale: 1}
	e.scalars.Put(scalars)
	if e.auditor != nil {
		e.auditor.begin()
	}
	if err := e.issue(); err != nil {
		return err
	}
	if err := e.wait(); err != nil {
		return err
	}
	return e.collect()
}

// issue puts one step on the streams.
func (e *Executor) issue() error {
	if err := e.issueUploads(); err != nil {
		return err
	}
	if err := e.compute.Record(e.begin); err != nil {
		return err
	}
	for i := range e.step.tape.seq {
		if err := e.issueOp(i); err != nil {
			return err
		}
	}
	if err := e.compute.Record(e.swept); err != nil {
		return err
	}
	for _, u := range e.updates {
		if err := e.compute.Launch(u); err != nil {
			return err
		}
	}
	if err := e.compute.Record(e.updated); err != nil {
		return err
	}
	return e.issueReturn()
}

// issueUploads copies the batch to the device once the step before has ended and its result is on the host.
func (e *Executor) issueUploads() error {
	if err := e.toDevice.Wait(e.returned); err != nil {
		return err
	}
	for _, u := range e.uploads {
		if err := e.toDevice.Copy(u.dst, u.src); err != nil {
			return err
		}
	}
	if err := e.toDevice.Record(e.ready); err != nil {
		return err
	}
	return e.compute.Wait(e.ready)
}

func (e *Executor) issueOp(i int) error {
	if e.auditor != nil {
		if err := e.compute.Synchronize(); err != nil {
			return err
		}
		e.auditor.before(i)
	}
	for _, launch := range e.step.launches[e.step.start[i]:e.step.start[i+1]] {
		if err := e.compute.Launch(launch); err != nil {
			return err
		}
	}
	if i == e.loss {
		if err := e.compute.Copy(part(e.static.result, lossAt, lossBytes), e.lossSpan); err != nil {
			return err
		}
	}
	if e.marks != nil {
		if err := e.compute.Record(e.marks[i]); err != nil {
			return err
		}
	}
	if e.auditor == nil && e.observer == nil {
		return nil
	}
	if err := e.compute.Synchronize(); err != nil {
		return err
	}
	if e.observer != nil {
		if err := e.observer.after(i); err != nil {
			return err
		}
	}
	if e.auditor != nil {
		e.auditor.after(i)
	}
	return nil
}

// issueReturn copies the loss to the host.
func (e *Executor) issueReturn() error {
	if err := e.compute.Record(e.done); err != nil {
		return err
	}
	if err := e.toHost.Wait(e.done); err != nil {
		return err
	}
	if err := e.toHost.Copy(e.host.result, e.static.result); err != nil {
		return err
	}
	return e.toHost.Record(e.returned)
}

// wait blocks until the step has ended.
func (e *Executor) wait() error {
	for _, s := range []runtime.Stream{e.toDevice, e.compute, e.toHost} {
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
	r.Loss, r.Correct, r.Norm = float64(values[lossAt/4]), int(values[lossAt/4+1]), float64(values[normAt/4])
	r.Skipped = math.IsNaN(r.Norm) || math.IsInf(r.Norm, 0)
	r.PeakBytes, r.ExtentBytes = e.step.peak, e.step.extent
	if r.Sequence, err = seconds(e.swept, e.begin); err != nil {
		return err
	}
	if r.Update, err = seconds(e.updated, e.swept); err != nil {
		return err
	}
	if err := e.collectOps(); err != nil {
		return err
	}
	if a := e.auditor; a != nil {
		r.PeakBytes, r.ExtentBytes, r.Live = a.peak, a.base+a.extent, a.owned
		return a.end()
	}
	return nil
}

func (e *Executor) collectOps() (err error) {
	last := e.begin
	for i, mark := range e.marks {
		if e.opTimes[i], err = seconds(mark, last); err != nil {
			return err
		}
		last = mark
	}
	e.result.Ops = e.opTimes
	return nil
}

func seconds(later, earlier runtime.Event) (float64, error) {
	d, err := later.Since(earlier)
	return d.Seconds(), err
}
