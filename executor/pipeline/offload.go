package pipeline

import (
	"context"

	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// openTransfers makes the streams of a stage to host memory and back, one for both where the plan's link does one thing at a time, and that
// of images that come ahead.
func (d *driver) openTransfers(t *localStage) (err error) {
	if t.ring.ahead {
		if d.batches, err = d.newQueue("batches"); err != nil {
			return err
		}
	}
	if len(t.ops[1].swaps) == 0 {
		return nil
	}
	return openHost(d, t.ring.duplex)
}

// join lets all streams of a ring wait for each other where a segment begins: its minibatches have memory from the first slot on, whatever
// the last ones of the segment before had.
func (d ringCompiler) join(t *localStage) error {
	if t == nil {
		return nil
	}
	for i, q := range d.queues() {
		if err := q.record(d.joined[i]); err != nil {
			return err
		}
	}
	for i, q := range d.queues() {
		for k, ev := range d.joined {
			if k == i {
				continue
			}
			if err := q.wait(ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// step notes a step of a minibatch. Where the minibatch is not in the run, the step does nothing, but waits and is waited for like all
// others. So what a step waits for stands for all that is before it on its stream, as in the middle of a run.
func (d ringCompiler) step(ctx context.Context, t *localStage, s *step, v instance, in bool) error {
	q, slot := d.queueOn(s.on), t.ring.slot(v.minibatch)
	for _, p := range s.waits[slot] {
		if err := d.note(command{verb: doWait, on: q, event: t.ring.steps[p.step].ends[p.slot], played: always}); err != nil {
			return err
		}
	}
	if in {
		if err := d.does(ctx, t, s, v); err != nil {
			return err
		}
	}
	if ev := s.ends[slot]; ev != nil {
		return d.note(command{verb: doRecord, on: q, event: ev, played: always})
	}
	return nil
}

// queueOn returns the queue of a stream.
func (d *driver) queueOn(on stream) queue {
	switch on {
	case toHost:
		return d.toHost
	case fromHost:
		return d.fromHost
	case ofBatches:
		return d.batches
	case onHost:
		return d.updating
	case onCompute:
		return d.compute
	}
	return d.links[int(on-links)]
}

// does issues what a step is.
func (d ringCompiler) does(ctx context.Context, t *localStage, s *step, v instance) error {
	switch {
	case s.swap != none:
		return d.carries(t, s, v)
	case s.batch:
		return d.comes(t, v)
	case s.on >= links || s.kind == pipeline.Update:
		return d.issueRecorded(ctx, v)
	case s.begin:
		_ = d.note(command{verb: doStart})
		return d.begins(ctx, t, v)
	}
	f := t.find(v.minibatch)
	if err := d.part(ctx, t, s, f); err != nil || !s.last {
		return err
	}
	if err := d.ends(t, v, f); err != nil {
		return err
	}
	return d.note(command{verb: doFinish, on: d.compute})
}

// begins begins a task.
func (d ringCompiler) begins(ctx context.Context, t *localStage, v instance) (err error) {
	if v.kind == pipeline.F {
		_, err = d.beginForward(ctx, t, v)
	} else {
		_, err = d.beginBackward(ctx, t, v)
	}
	if err != nil {
		return err
	}
	return d.watch.start(d.compute)
}

// part issues an op of a task, or in simulated time its part of it.
func (d ringCompiler) part(ctx context.Context, t *localStage, s *step, f *inFlight) error {
	o := &t.ops[1].tasks[s.kind][s.op]
	if d.paced != nil {
		if err := d.compute.launch(prepared{Launch: d.paced[taskKey{s.kind, s.stage, s.op}]}); err != nil {
			return err
		}
	} else if err := d.op(ctx, t, o, f); err != nil {
		return err
	}
	if s.kind != pipeline.F || s.op != t.ring.leaves || f.from == nil {
		return nil
	}
	if err := d.compute.record(f.from.freed[f.block]); err != nil {
		return err
	}
	return d.leaves(f)
}

// carries issues a transfer.
func (d ringCompiler) carries(t *localStage, s *step, v instance) error {
	f := t.find(v.minibatch)
	sb, m, q := &t.slabs[f.slab], &t.ops[1].swaps[s.swap], d.queueOn(s.on)
	_ = d.note(command{verb: doBegin})
	var err error
	switch {
	case s.kind == pipeline.B:
		err = t.ring.copy(q, sb.items[m.to].Part(0, m.bytes), sb.hostCopies[s.swap])
	case m.from == none:
		err = d.entryGoes(t, f, q, sb.hostCopies[s.swap])
	default:
		err = t.ring.copy(q, sb.hostCopies[s.swap], sb.items[m.from].Part(0, m.bytes))
	}
	if err != nil {
		return err
	}
	return d.note(command{verb: doEnd, on: q})
}

// comes copies the images of a minibatch whose forward is to come, which is what is blamed when that fails.
func (d ringCompiler) comes(t *localStage, v instance) error {
	p := &d.staging[t.stage]
	i := p.arrivals % stagingSlots
	p.arrivals++
	if err := d.fillsSlot(t, i); err != nil {
		return err
	}
	_ = d.note(command{verb: doBegin})
	sb := &t.slabs[t.ring.slot(v.minibatch)]
	if err := t.ring.copy(d.batches, sb.images[0].Part(0, p.images[i].Bytes), p.images[i]); err != nil {
		return err
	}
	return d.note(command{verb: doEnd, on: d.batches})
}

// copy copies between host and device in pieces.
func (r *ring) copy(q queue, dst, src runtime.Span) error {
	for at := int64(0); at < src.Bytes; at += r.piece {
		n := min(r.piece, src.Bytes-at)
		if err := q.copy(dst.Part(at, n), src.Part(at, n)); err != nil {
			return err
		}
	}
	return nil
}

// entryGoes copies the input of a stage to the host. The block in which it has come is free when that is done, and the last op
// of the forward that reads it: its sender waits for both.
func (d ringCompiler) entryGoes(t *localStage, f *inFlight, q queue, hostCopy runtime.Span) error {
	if f.from == nil { // the images, which are in the ring
		return t.ring.copy(q, hostCopy, f.entry.Part(0, hostCopy.Bytes))
	}
	if err := q.wait(f.from.arrived[f.block]); err != nil {
		return err
	}
	if err := t.ring.copy(q, hostCopy, f.entry.Part(0, hostCopy.Bytes)); err != nil {
		return err
	}
	if err := q.record(f.from.copied[f.block]); err != nil {
		return err
	}
	return d.leaves(f)
}

// leaves counts what is done with the input of a stage whose input goes to the host: copied, and read for the last time. Then the
// sender may have its block.
func (d ringCompiler) leaves(f *inFlight) error {
	if f.left = !f.left; f.left {
		return nil
	}
	from := f.from
	f.from = nil
	return d.grant(from, f.block)
}

// ends ends a task.
func (d ringCompiler) ends(t *localStage, v instance, f *inFlight) error {
	if err := d.watch.end(d.compute); err != nil {
		return err
	}
	if v.kind == pipeline.F {
		return d.endForward(t, f)
	}
	return d.endBackward(t, v, f)
}
