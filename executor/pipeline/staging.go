package pipeline

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// slots returns how many of stagingSlots a driver uses. Microbatches that each run a sequence come one after the other: while one runs, the
// next one comes to the place that it has left.
func (d *driver) slots() int {
	if d.lay.order.Plan.RunsSequence() {
		return 1
	}
	return stagingSlots
}

// lossBytes is the size of the loss's results at the beginning of its output: the loss, the number of correct predictions and the
// number of labels that count, float32.
const lossBytes = 12

// checkStaged refuses, with ErrPlan, a plan without a flush for a workload whose next batch waits on the device.
func checkStaged(w *Workload, plan *pipeline.Plan) error {
	if w.StagedBytes() == 0 || plan.IsFlush() {
		return nil
	}
	return fmt.Errorf("%w: its next batch waits on the device, and that is for plans with a flush, weight versions are %q: leave Workload.Stage out", order.ErrPlan, plan.Versions)
}

// openBatches makes the stream of the next batch, and its events.
func openBatches(d *driver) (err error) {
	var events []*runtime.Event
	for s, t := range d.stages {
		if t != nil && t.waiting.holds() {
			events = append(append(events, &t.waiting.taken), each(d.staging[s].staged[:])...)
		}
	}
	if len(events) > 0 {
		d.batches, err = d.newQueue("batches")
	}
	return errors.Join(err, makeEvents(d.Dev, events...))
}

// fillsSlot lets the host put what belongs to the minibatch of the task into a place of page-locked memory; the scalars alone where the
// batch waits on the device.
func (d taskCompiler) fillsSlot(t *localStage, i int) {
	p := &d.staging[t.stage]
	pages := p.batch[i]
	if t.waiting.holds() {
		pages = pages[:1]
	}
	d.host(table.Command{Work: table.FillBatch, Stage: t.stage, Slot: i, Event: p.uploaded[i], Pages: pages, Writes: true})
}

// upload brings a batch and its scalars to the device. Images that have come ahead are there: compute is behind them.
func (d taskCompiler) upload(t *localStage, sb *slab, v order.Instance) error {
	p := &d.staging[t.stage]
	i := p.uploads % d.slots()
	p.uploads++
	ahead, waits := t.ring != nil && t.ring.ahead, t.waiting.holds()
	if waits {
		d.stageAhead(t, v)
	}
	if !ahead {
		d.fillsSlot(t, i)
	}
	d.compute.Copy(sb.scalars, p.scalars[i])
	if waits {
		d.compute.Record(p.uploaded[i])
		return d.takeStaged(t, sb, i)
	}
	if t.stage == 0 && !ahead {
		for _, c := range imageCopies(d.lay.Workload, sb.images, p.images[i]) {
			d.compute.Copy(c[0], c[1])
		}
	}
	if t.stage == len(d.stages)-1 {
		d.compute.Copy(sb.labels, p.labels[i])
	}
	d.compute.Record(p.uploaded[i])
	return nil
}

// stageAhead lets the batch of a forward come to where it waits on the device. That of the first forward is no part of its row.
func (d taskCompiler) stageAhead(t *localStage, v order.Instance) {
	p, r := &d.staging[t.stage], d.Recording
	i := p.arrivals % d.slots()
	if p.arrivals++; p.arrivals == 1 {
		at, opens := r.At, new([]int32)
		r.At = opens
		defer func() { r.At, r.Opens = at, append(r.Opens, table.RecordedOpening{Instance: v, List: *opens}) }()
	}
	d.host(table.Command{Work: table.FillAhead, Stage: t.stage, Slot: i, Event: p.staged[i], Pages: p.batch[i][1:], Writes: true})
	d.batches.Wait(t.waiting.taken)
	copies := imageCopies(d.lay.Workload, t.waiting.images, p.images[i])
	if t.waiting.labels.Bytes > 0 {
		copies = append(copies, [2]runtime.Span{t.waiting.labels, p.labels[i]})
	}
	for _, c := range copies {
		d.batches.Copy(c[0], c[1])
	}
	d.batches.Record(p.staged[i])
}

// takeStaged brings the batch that waits to where the ops of its forward read it.
func (d taskCompiler) takeStaged(t *localStage, sb *slab, i int) error {
	d.compute.Wait(d.staging[t.stage].staged[i])
	list, err := d.binder.lookups(lookup(d.lay.Workload), t.waiting.table, t.waiting.images, sb.images)
	if err != nil {
		return err
	}
	d.launch(list)
	if t.waiting.labels.Bytes > 0 {
		d.compute.Copy(sb.labels, t.waiting.labels)
	}
	d.compute.Record(t.waiting.taken)
	return nil
}

// fill puts a batch and its scalars into page-locked memory.
func (d *driver) fill(c *table.Command, minibatch int) error {
	t, i := d.stages[c.Stage], c.Slot
	p := &d.staging[t.stage]
	if err := p.uploaded[i].Synchronize(); err != nil {
		return err
	}
	if err := d.settleNorm(); err != nil { // of the step before
		return err
	}
	b, err := d.Dev.HostBytes(p.scalars[i])
	if err != nil {
		return err
	}
	m := d.done + minibatch
	putScalars(b, d.lay.scalars(m), d.updateScalars(t, m), d.lay.order.Plan)
	if t.waiting.holds() {
		return p.aheadErr
	}
	early := p.early
	if p.early = none; early == m {
		return nil
	}
	return p.fillData(d, i, m)
}

// fillData puts the images and the labels of a minibatch, counted through all runs, into a slot.
func (p *staging) fillData(d *driver, slot, m int) error {
	if p.images[slot].Bytes > 0 {
		images, err := d.Dev.HostBytes(p.images[slot])
		if err != nil {
			return err
		}
		if err := fillImages(d.lay.Workload, d.lay.opt.Feed, m, images); err != nil {
			return err
		}
	}
	if p.labels[slot].Bytes == 0 {
		return nil
	}
	labels, err := d.Dev.HostBytes(p.labels[slot])
	if err != nil {
		return err
	}
	return d.lay.opt.Feed.Labels(m, unsafe.Slice((*int32)(unsafe.Pointer(&labels[0])), len(labels)/4))
}

// fillAhead puts a batch that is to wait on the device into a slot. An error of the feed is one of the forward that the batch is for.
func (p *staging) fillAhead(d *driver, slot, m int) error {
	if err := p.staged[slot].Synchronize(); err != nil {
		return err
	}
	p.ahead, p.aheadErr = m, p.fillData(d, slot, m)
	return nil
}

// fillEarly puts the batch of a minibatch, of the next run, into page-locked memory while the step that was issued runs, if it may. A batch
// that cannot be made is asked for again when its run begins, which is told why.
func (d *driver) fillEarly(m int) error {
	feed, may := d.lay.opt.Feed.(EarlyFeed)
	if !may || !d.lay.order.Plan.RunsSequence() || !feed.Early(m) {
		return nil
	}
	p := &d.staging[0]
	if d.stages[0].waiting.holds() { // it comes early to the device
		return nil
	}
	if err := p.uploaded[0].Synchronize(); err != nil {
		return err
	}
	if p.fillData(d, 0, m) == nil {
		p.early = m
	}
	return nil
}

// putScalars encodes the scalars of a minibatch and those of its update.
func putScalars(b []byte, own, update kernels.Scalars, plan *pipeline.Plan) {
	if !plan.IsFlush() {
		own.Put(b)
		update.Put(b[kernels.ScalarsBytes:])
		return
	}
	own.Update, own.LR, own.GradScale = update.Update, update.LR, update.GradScale
	own.Put(b)
}

// scalars returns the scalars of a minibatch, counted through all runs, which tell dropouts apart. A flush plan counts
// steps, and microbatches within them.
func (lay *layout) scalars(m int) kernels.Scalars {
	k := kernels.Scalars{Seed: lay.opt.Seed, Step: uint64(m)}
	if lay.order.Plan.IsFlush() {
		k.Step, k.Microbatch = uint64(m/lay.group), uint64(m%lay.group)
	}
	return k
}

// updateScalars returns the scalars of the update of a stage that a minibatch, counted through all runs, belongs to. The first group
// begins where the run that this one goes on from has ended, which may have had another plan. A step that was skipped updated nothing.
func (d *driver) updateScalars(t *localStage, m int) kernels.Scalars {
	update := (m - d.lay.opt.Past.Minibatches) / t.stash.Group
	return kernels.Scalars{Update: uint64(update - d.guard.skips()), LR: d.lay.rate(t, update), GradScale: 1 / float32(t.stash.Group)}
}

// rate returns the learning rate of an update of a stage, counted from the start of this run.
func (lay *layout) rate(t *localStage, update int) float32 {
	step := lay.opt.Past.Minibatches + update*t.stash.Group
	if lay.order.Plan.IsFlush() {
		step /= lay.group
	}
	rate := lay.opt.Rate(step)
	if p := lay.opt.PipeMare; p != nil && p.Anneal > 0 {
		return p.rescheduled(rate, int(lay.earlier(t.stage, t.spec.First))+update, lay.delays[t.stage])
	}
	return rate
}

// earlier returns how often the weights of a layer, from 1, of a stage were updated before.
func (lay *layout) earlier(stage, layer int) uint64 {
	if lay.opt.Past.Updates == nil {
		return uint64(lay.opt.Past.Minibatches / lay.rules[stage].Group)
	}
	return uint64(lay.opt.Past.Updates[layer-1])
}

// updates returns how often the weights of each layer are updated when so many minibatches, of all runs, are done, and so many
// updates were skipped.
func (lay *layout) updates(done, skipped int) (all []int64) {
	for s, st := range lay.order.Plan.Stages {
		for l := st.First; l <= st.Last; l++ {
			all = append(all, int64(lay.earlier(s, l))+int64((done-lay.opt.Past.Minibatches)/lay.rules[s].Group-skipped))
		}
	}
	return all
}

// report copies the loss of a minibatch to page-locked memory, and tells that of an earlier one.
func (d taskCompiler) report(t *localStage, f *inFlight) {
	p := &d.staging[t.stage]
	i := (p.uploads - 1) % d.slots()
	d.host(table.Command{Work: table.AwaitResult, Stage: t.stage, Slot: i, Event: p.returned[i], Pages: p.result[i]})
	d.compute.Copy(p.results[i], t.output(f).Part(0, lossBytes))
	d.compute.Record(p.returned[i])
}

// awaitResult says that a result is on its way to a slot, behind all that are on theirs until the slot is free.
func (d *driver) awaitResult(c *table.Command, minibatch int) error {
	p := &d.staging[c.Stage]
	for slices.ContainsFunc(p.pending, func(r pendingResult) bool { return r.slot == c.Slot }) {
		if err := d.tell(p); err != nil {
			return err
		}
	}
	p.pending = append(p.pending, pendingResult{minibatch: minibatch, slot: c.Slot, norm: math.NaN()})
	return nil
}

// tell waits for the first result that is on its way, and hands it on.
func (d *driver) tell(p *staging) error {
	x := p.pending[0]
	p.pending = slices.Delete(p.pending, 0, 1)
	task := order.Instance{Instruction: order.Instruction{Kind: pipeline.F, Stage: len(d.stages) - 1, To: none}, Minibatch: x.minibatch}
	if err := p.returned[x.slot].Synchronize(); err != nil {
		return d.failed(task, err)
	}
	b, err := d.Dev.HostBytes(p.results[x.slot])
	if err != nil {
		return d.failed(task, err)
	}
	values := unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
	d.reports.tell(d.lay.opt.Done, Result{
		Minibatch: d.done + x.minibatch, Loss: float64(values[0]), Correct: int(values[1]), Counted: int(values[2]),
		Norm: x.norm, Skipped: x.skipped,
	})
	return nil
}

func (r *reports) tell(done func(Result), result Result) {
	if done == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	done(result)
}
