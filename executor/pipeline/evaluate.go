package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
)

// newEvaluation lays out the evaluation of a stage; nil when the stage is the loss alone.
func newEvaluation(d *driver, t *localStage, scalars runtime.Span, g *allocator) *evaluation {
	x := &evaluation{stage: t, driver: d}
	for l := t.spec.First; l <= min(t.spec.Last, len(d.lay.Layers)-1); l++ {
		x.ops = append(x.ops, stageops.Op{Layer: l, Program: &d.lay.Carried[l-1].Eval})
	}
	if len(x.ops) == 0 {
		return nil
	}
	x.layOut(scalars, g)
	return x
}

// layOut lays out the forwards of the ops of the stage, which save nothing.
func (x *evaluation) layOut(scalars runtime.Span, g *allocator) {
	wiring := x.driver.lay.Model.Wiring()
	at, scratch := x.place(wiring, g)
	for i, o := range x.ops {
		f := frame{output: at[o.Layer], scratch: scratch[i], scalars: scalars}
		for k, a := range wiring.Reads(o.Layer) {
			if k == 0 {
				f.input = at[a]
			} else {
				f.skips = append(f.skips, skipTensor{span: at[a]})
			}
		}
		x.frames = append(x.frames, f)
	}
	for _, a := range x.entries(wiring) {
		x.inputs = append(x.inputs, at[a])
	}
	x.output = x.frames[len(x.frames)-1].output
}

// alone reports whether no other stage works beside this one.
func (x *evaluation) alone() bool { return len(x.driver.lay.order.On) == 1 }

// entries returns the activations that come into the stage.
func (x *evaluation) entries(w chain.Wiring) (all []int) {
	if x.stage.stage > 0 {
		return []int{x.ops[0].Layer - 1}
	}
	for k := range w.Inputs() {
		all = append(all, w.Input(k))
	}
	return all
}

// lastReads returns, by activation, the last op that reads it; a position after all ops: it stays. The activation from the stage before
// stays, for it may come as soon as the last op of the batch before has ended.
func (x *evaluation) lastReads(w chain.Wiring) map[int]int {
	last := map[int]int{}
	for i, o := range x.ops {
		last[o.Layer] = len(x.ops)
		for _, a := range w.Reads(o.Layer) {
			last[a] = i
		}
	}
	if x.stage.stage > 0 {
		last[x.ops[0].Layer-1] = len(x.ops)
	}
	return last
}

// place places the activations of an evaluation, the scratch memory of each op, and images that are bytes. Activations that have been
// read make room for others.
func (x *evaluation) place(w chain.Wiring, g *allocator) (at map[int]runtime.Span, scratch []runtime.Span) {
	e, s, last := x.driver.lay, x.stage.stage, x.lastReads(w)
	at = map[int]runtime.Span{}
	var items []pack.Item
	var places []func(runtime.Span) // by item
	// Moment 0 is when the batch comes, op i runs at moment i+1.
	add := func(bytes int64, first, last int, place func(runtime.Span)) {
		items, places = append(items, pack.Item{Bytes: kernels.Align(bytes), First: first + 1, Last: last + 1}), append(places, place)
	}
	if before := e.evaluationOf(s - 1); s > 0 && before.driver == x.driver {
		at[x.ops[0].Layer-1] = before.output
	} else {
		for _, a := range x.entries(w) {
			add(e.entryBytes(s), -1, last[a], func(span runtime.Span) { at[a] = span })
		}
	}
	for range x.stage.waiting.images {
		add(imageBytes(e.Workload), -1, -1, func(span runtime.Span) { x.pixels = append(x.pixels, span) })
	}
	for i, o := range x.ops {
		add(e.Carried[o.Layer-1].OutputBytes, i, last[o.Layer], func(span runtime.Span) { at[o.Layer] = span })
		add(o.Program.Scratch, i, i, func(span runtime.Span) { scratch = append(scratch, span) })
	}
	base := g.end
	g.alloc(pack.Pack(items, len(x.ops)+2))
	for i, it := range items {
		it.Offset += base
		places[i](itemSpan(it))
	}
	return at, scratch
}

// layEvaluations lays out the evaluation of the stages whose first device this is, behind the static memory, and returns where it
// ends.
func (lay *layout) layEvaluations(d *driver, m *Memory) int64 {
	g := &allocator{end: m.Static}
	scalars := g.alloc(kernels.ScalarsBytes)
	for s, t := range d.stages {
		if t == nil || lay.placedBefore(s) {
			continue
		}
		if x := newEvaluation(d, t, scalars, g); x != nil {
			lay.evaluations = append(lay.evaluations, x)
		}
	}
	return g.end
}

// placedBefore reports whether an earlier device has the stage.
func (lay *layout) placedBefore(s int) bool {
	for _, d := range lay.drivers {
		if d.stages[s] != nil {
			return true
		}
	}
	return false
}

// evaluationOf returns the evaluation of a stage; an empty one when it is laid out later.
func (lay *layout) evaluationOf(s int) *evaluation {
	for _, x := range lay.evaluations {
		if x.stage.stage == s {
			return x
		}
	}
	return &evaluation{}
}

// entryBytes returns the size of the input of a stage.
func (lay *layout) entryBytes(s int) int64 {
	if first := lay.order.Plan.Stages[s].First; first > 1 {
		return lay.Carried[first-2].OutputBytes
	}
	return lay.InputBytes()
}

// Evaluate predicts batches 0 to n-1 of a feed in evaluation mode, with the weights as they are; it does not ask for labels. It calls each
// for the logits of each batch in order: float32, N,Classes, of tokens N,T,Classes, valid during the call. Errors: *TaskError, that of
// each, *StuckError, ErrStopped, the context's; after one of a device the executor is stopped.
func (e *Executor) Evaluate(ctx context.Context, feed Feed, n int, each func(batch int, logits []float32) error) error {
	if e.stopped {
		return ErrStopped
	}
	err := checkFeed(e.Workload, feed)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	all.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				e.stopped, err = true, panicked(v)
			}
		}()
		err = e.evaluate(ctx, feed, n, each)
	})
	if stuck := e.watchdog().await(&all, cancel); stuck != nil {
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
	r := &evaluator{e: e, stages: all, feed: feed, logits: make([]float32, e.Model.Logits())}
	last := all[len(all)-1]
	for t := range n + len(all) - 1 {
		if err := context.Cause(ctx); err != nil {
			return r.drain(err)
		}
		for s := len(all) - 1; s >= 0; s-- {
			batch := t - s
			if batch < 0 || batch >= n {
				continue
			}
			err := gather(e, all[s].driver, all[s].stage)
			if err == nil && e.opt.World.has(all[s].driver.Number) {
				err = r.issue(all[s], batch)
			}
			if err != nil {
				return r.stop(all[s], batch, err)
			}
		}
		batch := t - len(all) + 1
		if batch < 0 || !e.opt.World.has(last.driver.Number) {
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
	for s := range e.order.On {
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
			return nil, &TaskError{Device: x.driver.Number, Task: x.String(), Err: err}
		}
	}
	return all, nil
}

func (x *evaluation) open() (err error) {
	dev, e := x.driver.Dev, x.driver.lay
	if len(x.pixels) > 0 {
		if x.numbers, err = x.driver.binder.lookups(lookup(e.Workload), x.stage.waiting.table, x.pixels, x.inputs); err != nil {
			return err
		}
	}
	if x.remote != nil { // where the next stage is here, and this one is not, that device receives
		dev = x.remote.dev
	}
	if x.link, err = dev.NewStream("evaluation of stage " + fmt.Sprint(x.stage.stage)); err != nil {
		return err
	}
	return errors.Join(makeEvents(dev, &x.sent), makeEvents(x.driver.Dev, &x.done))
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
	if x.crosses {
		if err := x.driver.compute.S.Wait(x.sent); err != nil {
			return err
		}
	}
	if err := r.receive(x, batch); err != nil {
		return err
	}
	for i := range x.ops {
		if err := x.fetch(i); err != nil {
			return err
		}
		list, err := x.driver.binder.op(x.stage, &x.ops[i], &x.frames[i])
		if err != nil {
			return err
		}
		for _, l := range list {
			if err := x.driver.compute.S.Launch(l.Launch); err != nil {
				return err
			}
		}
	}
	if err := x.driver.compute.S.Record(x.done); err != nil || !x.crosses {
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
			if err := before.over(x.done, x.inputs[0]); err != nil {
				return err
			}
		}
		if before.crosses {
			return d.compute.S.Wait(before.sent)
		}
		return nil
	}
	return r.show(x, batch)
}

// show brings the images of a batch from the feed.
func (r *evaluator) show(x *evaluation, batch int) error {
	d, to := x.driver, x.inputs
	p, i := &d.staging[0], batch%d.slots()
	p.early = none
	if len(x.pixels) > 0 {
		to = x.pixels
		_ = p.staged[i].Synchronize() // the next batch of a run has left it; whether that has failed the run says
	}
	if err := p.uploaded[i].Synchronize(); err != nil {
		return err
	}
	images, err := d.Dev.HostBytes(p.images[i])
	if err != nil {
		return err
	}
	if err := fillImages(r.e.Workload, r.feed, batch, images); err != nil {
		return err
	}
	for _, c := range imageCopies(r.e.Workload, to, p.images[i]) {
		if err := d.compute.S.Copy(c[0], c[1]); err != nil {
			return err
		}
	}
	for _, l := range x.numbers {
		if err := d.compute.S.Launch(l.Launch); err != nil {
			return err
		}
	}
	return d.compute.S.Record(p.uploaded[i])
}

// send copies the output of a stage to the next one, behind what that has done so far.
func (x *evaluation) send() error {
	if x.remote != nil {
		return x.over(x.done, x.output.Part(0, x.next.inputs[0].Bytes))
	}
	if err := x.link.Wait(x.done); err != nil {
		return err
	}
	if err := x.link.Wait(x.next.done); err != nil {
		return err
	}
	to := x.next.inputs[0]
	if err := x.link.CopyPeer(x.next.driver.Dev, to, x.output.Part(0, to.Bytes)); err != nil {
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
		widen(r.logits, dst)
	}
	return nil
}

// drain waits for what was issued, so that the next run has the memory to itself.
func (r *evaluator) drain(err error) error {
	for _, x := range r.stages {
		for _, s := range []runtime.Stream{x.driver.compute.S, x.link} {
			if failure := s.Synchronize(); failure != nil && err == nil {
				return r.stop(x, r.e.done, failure)
			}
		}
	}
	return err
}

func (r *evaluator) stop(x *evaluation, batch int, err error) error {
	r.e.stopped = true
	r.e.opt.World.stop(err)
	return &TaskError{Device: x.driver.Number, Task: x.String(), Minibatch: batch, Err: err}
}
