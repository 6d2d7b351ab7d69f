package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// evaluation is the forward of a stage in evaluation mode, on the first device that has the stage: every layer but the loss, one
// activation at a time. It works where minibatches in flight have their memory during training, since none is.
//
// Batches go through the stages as in a pipeline of F alone: in one round stage s works on batch t-s. A stage waits until its
// output has left before it computes the next one, and a copy waits until the stage behind has used the one before.
type evaluation struct {
	stage   *localStage
	driver  *driver
	ops     []op
	frames  []frame
	input   runtime.Span // a_{i-1}; the output of the stage before when that is on the same device
	output  runtime.Span
	next    *evaluation // nil for the last
	link    runtime.Stream
	done    runtime.Event // the ops of the latest batch
	sent    runtime.Event // its output has left for the next stage, on another device
	crosses bool          // the next stage is on another device
	bytes   int64         // of everything but the input; of all where the stage is alone
	remote  *remote       // where the next stage is in another process
}

// newEvaluation lays out the evaluation of a stage; nil when the stage is the loss alone.
func (d *driver) newEvaluation(t *localStage) *evaluation {
	last := min(t.spec.Last, len(d.e.Layers)-1)
	if last < t.spec.First {
		return nil
	}
	x := &evaluation{stage: t, driver: d}
	x.layOut(last, d.e.carried(), func(p *models.Programs) *models.Program { return &p.Eval })
	return x
}

// layOut lays out a forward of the stage up to a layer that saves nothing: what each layer runs of its programs. Where the stage is the
// only one, its input is a part of that, and others take its place.
func (x *evaluation) layOut(last int, programs []*models.Programs, choose func(*models.Programs) *models.Program) {
	first := x.stage.spec.First
	var items []pack.Item
	for l := first; l <= last; l++ {
		p, i := programs[l-1], l-first
		x.ops = append(x.ops, op{layer: l, program: choose(p)})
		items = append(items, pack.Item{Bytes: kernels.Align(p.OutputBytes), First: i, Last: i + 1},
			pack.Item{Bytes: kernels.Align(choose(p).Scratch), First: i, Last: i})
	}
	if x.alone() {
		items = append(items, pack.Item{Bytes: kernels.Align(x.driver.e.InputBytes())})
	}
	x.bytes = pack.Pack(items, len(x.ops)+1)
	for i := range x.ops {
		f := frame{output: itemSpan(items[2*i]), scratch: itemSpan(items[2*i+1])}
		if i > 0 {
			f.input = x.frames[i-1].output
		}
		x.frames = append(x.frames, f)
	}
	if x.alone() {
		x.input = itemSpan(items[len(items)-1])
	}
}

// alone reports whether no other stage works beside this one.
func (x *evaluation) alone() bool { return len(x.driver.e.order.on) == 1 }

func itemSpan(it pack.Item) runtime.Span { return runtime.Span{Offset: it.Offset, Bytes: it.Bytes} }

// layEvaluations lays out the evaluation of the stages whose first device this is, behind the static memory, and returns where it
// ends.
func (e *Executor) layEvaluations(d *driver, m *Memory) int64 {
	g := &allocator{end: m.Static}
	scalars := g.alloc(kernels.ScalarsBytes)
	for s, t := range d.stages {
		if t == nil || e.placedBefore(s) {
			continue
		}
		x := d.newEvaluation(t)
		if x == nil {
			continue
		}
		switch before := e.evaluationOf(s - 1); {
		case x.alone():
		case s == 0 || before.driver != d:
			x.input = g.alloc(e.entryBytes(s))
		default:
			x.input = before.output
		}
		x.at(g.alloc(x.bytes).Offset, scalars)
		e.evaluations = append(e.evaluations, x)
	}
	return g.end
}

// placedBefore reports whether an earlier device has the stage.
func (e *Executor) placedBefore(s int) bool {
	for _, d := range e.drivers {
		if d.stages[s] != nil {
			return true
		}
	}
	return false
}

// evaluationOf returns the evaluation of a stage; an empty one when it is laid out later.
func (e *Executor) evaluationOf(s int) *evaluation {
	for _, x := range e.evaluations {
		if x.stage.stage == s {
			return x
		}
	}
	return &evaluation{}
}

// entryBytes returns the size of the input of a stage.
func (e *Executor) entryBytes(s int) int64 {
	if first := e.order.plan.Stages[s].First; first > 1 {
		return e.carried()[first-2].OutputBytes
	}
	return e.InputBytes()
}

// at moves the blocks of an evaluation to where they lie.
func (x *evaluation) at(offset int64, scalars runtime.Span) {
	for i := range x.frames {
		f := &x.frames[i]
		f.output.Offset += offset
		f.scratch.Offset += offset
		f.input.Offset += offset
		f.scalars = scalars
	}
	if x.alone() {
		x.input.Offset += offset
	}
	x.frames[0].input = x.input
	x.output = x.frames[len(x.frames)-1].output
}

// Evaluate predicts batches 0 to n-1 of a feed, whose labels it does not ask for, in evaluation mode with the weights as they
// are, and calls each for their logits in order: float32, N,Classes, of tokens N,T,Classes, valid during the call. Errors: *TaskError, that of each,
// *StuckError, ErrStopped, the context's; after one of a device the executor is stopped.
func (e *Executor) Evaluate(ctx context.Context, feed Feed, n int, each func(batch int, logits []float32) error) error {
	if e.stopped {
		return ErrStopped
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var err error
	all.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				e.stopped, err = true, panicked(v)
			}
		}()
		err = e.evaluate(ctx, feed, n, each)
	})
	if stuck := e.await(&all, cancel, e.opt.Patience); stuck != nil {
		e.stopped = true
		return stuck // err may still be written
	}
	return err
}

func (e *Executor) evaluate(ctx context.Context, feed Feed, n int, each func(batch int, logits []float32) error) error {
	all, err := e.openEvaluations()
	if err != nil {
		return err
	}
	r := &evaluator{e: e, stages: all, feed: feed, logits: make([]float32, e.Model.Labels.Elements()*int64(e.Model.Classes))}
	last := all[len(all)-1]
	for t := range n + len(all) - 1 {
		if err := context.Cause(ctx); err != nil {
			return r.drain(err)
		}
		for s := len(all) - 1; s >= 0; s-- {
			if batch := t - s; batch >= 0 && batch < n && e.here(all[s].driver.device) {
				if err := r.issue(all[s], batch); err != nil {
					return r.stop(all[s], batch, err)
				}
			}
		}
		batch := t - len(all) + 1
		if batch < 0 || !e.here(last.driver.device) {
			continue
		}
		if err := r.read(last); err != nil {
			return r.stop(last, batch, err)
		}
		if err := each(batch, r.logits); err != nil {
			return r.drain(err)
		}
	}
	return r.drain(nil)
}

// openEvaluations returns the evaluations in the order of the stages, with streams and events.
func (e *Executor) openEvaluations() ([]*evaluation, error) {
	var all []*evaluation
	for s := range e.order.on {
		if x := e.evaluationOf(s); x.stage != nil {
			all = append(all, x)
		}
	}
	for i, x := range all {
		if x.done != nil {
			continue // opened before
		}
		if i+1 < len(all) {
			x.next, x.crosses = all[i+1], all[i+1].driver != x.driver
		}
		if err := x.open(); err != nil {
			return nil, &TaskError{Device: x.driver.device, Task: x.String(), Err: err}
		}
	}
	return all, nil
}

func (x *evaluation) open() (err error) {
	dev := x.driver.dev
	if x.remote != nil { // where the next stage is here, and this one is not, that device receives
		dev = x.remote.dev
	}
	if x.link, err = dev.NewStream("evaluation of stage " + fmt.Sprint(x.stage.stage)); err != nil {
		return err
	}
	return errors.Join(makeEvents(dev, &x.sent), makeEvents(x.driver.dev, &x.done))
}

func (x *evaluation) String() string { return fmt.Sprintf("evaluation of stage %d", x.stage.stage) }

// evaluator issues evaluations.
type evaluator struct {
	e      *Executor
	stages []*evaluation
	feed   Feed
	logits []float32
}

// issue lets a stage work on a batch and send what it made.
func (r *evaluator) issue(x *evaluation, batch int) error {
	x.driver.progress.tasks.Add(1)
	if err := r.receive(x, batch); err != nil {
		return err
	}
	if x.crosses {
		if err := x.driver.compute.s.Wait(x.sent); err != nil {
			return err
		}
	}
	for i := range x.ops {
		list, err := x.driver.binder.op(x.stage, &x.ops[i], &x.frames[i])
		if err != nil {
			return err
		}
		for _, l := range list {
			if err := x.driver.compute.s.Launch(l.Launch); err != nil {
				return err
			}
		}
	}
	if err := x.driver.compute.s.Record(x.done); err != nil || !x.crosses {
		return err
	}
	return x.send()
}

// receive brings the input of a stage: images from the feed, or what the stage before has sent.
func (r *evaluator) receive(x *evaluation, batch int) error {
	d := x.driver
	if x.stage.stage > 0 {
		before := r.e.evaluationOf(x.stage.stage - 1)
		if before.remote != nil {
			if err := before.over(x.done, x.input); err != nil {
				return err
			}
		}
		if before.crosses {
			return d.compute.s.Wait(before.sent)
		}
		return nil
	}
	p, i := &d.staging[0], batch%d.slots()
	p.early = none
	if err := p.uploaded[i].Synchronize(); err != nil {
		return err
	}
	images, err := d.dev.HostBytes(p.images[i])
	if err != nil {
		return err
	}
	if err := r.feed.Images(batch, unsafe.Slice((*float32)(unsafe.Pointer(&images[0])), len(images)/4)); err != nil {
		return err
	}
	if err := d.compute.s.Copy(x.input.Part(0, p.images[i].Bytes), p.images[i]); err != nil {
		return err
	}
	return d.compute.s.Record(p.uploaded[i])
}

// send copies the output of a stage to the next one, behind what that has done so far.
func (x *evaluation) send() error {
	if x.remote != nil {
		return x.over(x.done, x.output.Part(0, x.next.input.Bytes))
	}
	if err := x.link.Wait(x.done); err != nil {
		return err
	}
	if err := x.link.Wait(x.next.done); err != nil {
		return err
	}
	to := x.next.input
	if err := x.link.CopyPeer(x.next.driver.dev, to, x.output.Part(0, to.Bytes)); err != nil {
		return err
	}
	return x.link.Record(x.sent)
}

// over sends the output of a stage to another process behind an event, or receives it from there.
func (x *evaluation) over(behind runtime.Event, span runtime.Span) error {
	launch, err := x.remote.launch(span)
	if err != nil {
		return err
	}
	if err := x.link.Wait(behind); err != nil {
		return err
	}
	if err := x.link.Launch(launch.Launch); err != nil {
		return err
	}
	return x.link.Record(x.sent)
}

// read waits for the logits of the last stage's latest batch.
func (r *evaluator) read(x *evaluation) error {
	dst := asBytes(r.logits)
	if r.e.Model.DType() == kernels.BFloat16 {
		dst = dst[len(dst)/2:]
	}
	if err := x.driver.read(x.output.Part(0, int64(len(dst))), dst); err != nil {
		return err
	}
	if r.e.Model.DType() == kernels.BFloat16 {
		for i := range r.logits { // each is written below all that are still to be read
			r.logits[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(dst[2*i:]))
		}
	}
	return nil
}

// read copies a span of the arena to dst.
func (d *driver) read(from runtime.Span, dst []byte) error {
	return d.chunks(from, func(dev, host runtime.Span, at int64) error {
		if err := d.compute.s.Copy(host, dev); err != nil {
			return err
		}
		if err := d.compute.s.Synchronize(); err != nil {
			return err
		}
		b, err := d.dev.HostBytes(host)
		copy(dst[at:], b)
		return err
	})
}

// drain waits for what was issued, so that the next run has the memory to itself.
func (r *evaluator) drain(err error) error {
	for _, x := range r.stages {
		for _, s := range []runtime.Stream{x.driver.compute.s, x.link} {
			if failure := s.Synchronize(); failure != nil && err == nil {
				return r.stop(x, r.e.done, failure)
			}
		}
	}
	return err
}

func (r *evaluator) stop(x *evaluation, batch int, err error) error {
	r.e.stopped = true
	r.e.fail(err)
	return &TaskError{Device: x.driver.device, Task: x.String(), Minibatch: batch, Err: err}
}
