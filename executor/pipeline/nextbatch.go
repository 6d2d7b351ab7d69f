package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PixelFeed is a feed of images that are bytes, for workloads whose next batch waits on the device (executor.Workload.Stage). Images is not
// called then. A run asks for the batch behind its last one; an error of that is one of the run that begins with it.
type PixelFeed interface {
	Feed
	// Pixels fills N,H,W,C, those of one branch behind those of the other.
	Pixels(minibatch int, dst []uint8) error
}

// stagedBatch is where the next batch of a stage waits on its device. It is copied there on a stream of its own, behind the event that the
// batch before is where its ops read it.
type stagedBatch struct {
	table  runtime.Span   // of the palette, which turns bytes into numbers
	images []runtime.Span // bytes, of each branch; none behind the first stage
	labels runtime.Span   // empty before the last stage
	taken  runtime.Event  // the latest batch is where its ops read it
}

// holds reports whether a stage has images or labels that wait.
func (b *stagedBatch) holds() bool { return len(b.images) > 0 || b.labels.Bytes > 0 }

// opening is what stages the first batch that a device has of a stage in a step, of an instance of its forward: it is played before the first
// step, and behind each for the next.
type opening struct {
	instance
	list []*command
}

// checkFeed refuses, with ErrPlan, a feed without bytes for a workload whose next batch waits on the device.
func checkFeed(w *Workload, feed Feed) error {
	if _, ok := feed.(PixelFeed); w.StagedBytes() > 0 && !ok {
		return fmt.Errorf("%w: the next batch waits on the device as bytes, and the feed has no Pixels: give one that has, or leave Workload.Stage out", ErrPlan)
	}
	return nil
}

// layStaged places the next batch of a stage, of a plan with a flush.
func (e *Executor) layStaged(t *localStage, g *allocator) error {
	if e.StagedBytes() == 0 {
		return nil
	}
	if !e.order.plan.IsFlush() {
		return fmt.Errorf("%w: its next batch waits on the device, and that is for plans with a flush, weight versions are %q: leave Workload.Stage out", ErrPlan, e.order.plan.Versions)
	}
	b := &t.waiting
	if t.stage == 0 {
		b.table = g.alloc(e.lookup().TableBytes())
		for range e.Model.Wiring().Inputs() {
			b.images = append(b.images, g.alloc(e.Model.Input.Elements()))
		}
	}
	if t.stage == len(e.order.on)-1 {
		b.labels = g.alloc(e.Model.Labels.Bytes())
	}
	return nil
}

// lookup is what makes numbers of the images of one branch.
func (e *Executor) lookup() kernels.Lookup {
	input := e.Model.Input
	return kernels.Lookup{Elements: input.Elements(), Channels: input.Shape[len(input.Shape)-1]}
}

// imageBytes returns the bytes of one branch's images in page-locked memory.
func (e *Executor) imageBytes() int64 {
	if e.StagedBytes() > 0 {
		return e.Model.Input.Elements()
	}
	return e.Model.Input.Bytes()
}

// writePalettes writes the palette to all devices that make numbers of images.
func (e *Executor) writePalettes() error {
	for _, d := range e.own() {
		if t := d.stages[0]; t != nil && len(t.waiting.images) > 0 {
			if err := d.write(t.waiting.table, e.Palette()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookups returns the launches that make numbers of the images of all branches.
func (b *binder) lookups(l kernels.Lookup, table runtime.Span, from, to []runtime.Span) (all []prepared, err error) {
	for k := range from {
		o := kernels.LookupOperands{X: from[k], Table: table, Y: to[k].Part(0, l.Elements*kernels.Float32.Size())}
		launch, err := b.lib.PrepareLookup(l, o)
		if err != nil {
			return nil, err
		}
		all = append(all, b.ready(launch, hazard.Uses(b.device, o.Uses(l))))
	}
	return all, nil
}

// stageAhead lets the batch of a forward come to where it waits on the device. That of the first forward is no part of its row.
func (d taskCompiler) stageAhead(t *localStage, v instance) error {
	p, r := &d.staging[t.stage], d.recording
	i := p.arrivals % stagingSlots
	if p.arrivals++; p.arrivals == 1 {
		at, opens := r.at, new([]int32)
		r.at = opens
		defer func() { r.at, r.opens = at, append(r.opens, recordedOpening{v, *opens}) }()
	}
	if err := d.host(command{work: fillAhead, stage: t, slot: i, event: p.staged[i], pages: p.batch[i][1:], writes: true}); err != nil {
		return err
	}
	if err := d.batches.wait(t.waiting.taken); err != nil {
		return err
	}
	copies := d.e.imageCopies(t.waiting.images, p.images[i])
	if t.waiting.labels.Bytes > 0 {
		copies = append(copies, [2]runtime.Span{t.waiting.labels, p.labels[i]})
	}
	for _, c := range copies {
		if err := d.batches.copy(c[0], c[1]); err != nil {
			return err
		}
	}
	return d.batches.record(p.staged[i])
}

// takeStaged brings the batch that waits to where the ops of its forward read it.
func (d taskCompiler) takeStaged(t *localStage, sb *slab, i int) error {
	if err := d.compute.wait(d.staging[t.stage].staged[i]); err != nil {
		return err
	}
	list, err := d.binder.lookups(d.e.lookup(), t.waiting.table, t.waiting.images, sb.images)
	if err != nil {
		return err
	}
	if err := d.launch(list); err != nil {
		return err
	}
	if t.waiting.labels.Bytes > 0 {
		if err := d.compute.copy(sb.labels, t.waiting.labels); err != nil {
			return err
		}
	}
	return d.compute.record(t.waiting.taken)
}

// fillAhead puts a batch that is to wait on the device into page-locked memory. An error is one of the forward that it is for.
func (d *driver) fillAhead(c *command, minibatch int) error {
	p, m := &d.staging[c.stage.stage], d.done+minibatch
	if err := p.staged[c.slot].Synchronize(); err != nil {
		return err
	}
	p.ahead, p.aheadErr = m, d.fillData(c, m)
	return nil
}

// isStaged reports whether the first batches of a segment wait on the device, rather than others, as behind an audit.
func (d *driver) isStaged() bool {
	for _, o := range d.table.opens {
		if d.staging[o.stage].ahead != d.done+o.minibatch {
			return false
		}
	}
	return true
}
