package pipeline

import (
	"context"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// openTransfers makes the streams of a stage to host memory and back, one for both where the plan's link does one thing at a time. It also
// makes the stream of images that come ahead.
func (d *driver) openTransfers(t *localStage) (err error) {
	if t.ring.ahead {
		if d.batches, err = d.newQueue("batches"); err != nil {
			return err
		}
	}
	if len(t.ops[1].Swaps) == 0 {
		return nil
	}
	return openHost(d, t.ring.duplex)
}

// join lets all streams of a ring wait for each other where a segment begins. Its minibatches have memory from the first slot on, whatever
// the last ones of the segment before had.
func (d ringCompiler) join(t *localStage) {
	if t == nil {
		return
	}
	for i, q := range d.queues() {
		q.Record(d.joined[i])
	}
	for i, q := range d.queues() {
		for k, ev := range d.joined {
			if k == i {
				continue
			}
			q.Wait(ev)
		}
	}
}

// step notes a step of a minibatch. Where the minibatch is not in the run, the step does nothing, but waits and is waited for like all
// others. So what a step waits for stands for all that is before it on its stream, as in the middle of a run.
func (d ringCompiler) step(ctx context.Context, t *localStage, s *step, v order.Instance, in bool) error {
	q, slot := d.queueOn(s.on), t.ring.slot(v.Minibatch)
	for _, p := range s.waits[slot] {
		d.note(table.Command{Verb: table.DoWait, On: q, Event: t.ring.steps[p.step].ends[p.slot], Played: table.Always})
	}
	if in {
		if err := d.does(ctx, t, s, v); err != nil {
			return err
		}
	}
	if ev := s.ends[slot]; ev != nil {
		d.note(table.Command{Verb: table.DoRecord, On: q, Event: ev, Played: table.Always})
	}
	return nil
}

// queueOn returns the queue of a stream.
func (d *driverQueues) queueOn(on stream) table.Queue {
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
func (d ringCompiler) does(ctx context.Context, t *localStage, s *step, v order.Instance) error {
	switch {
	case s.swap != none:
		d.carries(t, s, v)
		return nil
	case s.batch:
		d.comes(t, v)
		return nil
	case s.on >= links || s.Kind == pipeline.Update:
		return d.issueRecorded(ctx, v)
	case s.begin:
		d.note(table.Command{Verb: table.DoStart})
		return d.begins(ctx, t, v)
	}
	f := t.find(v.Minibatch)
	if err := d.part(ctx, t, s, f); err != nil || !s.last {
		return err
	}
	d.ends(t, v, f)
	d.note(table.Command{Verb: table.DoFinish, On: d.compute})
	return nil
}

// begins begins a task.
func (d ringCompiler) begins(ctx context.Context, t *localStage, v order.Instance) (err error) {
	if v.Kind == pipeline.F {
		_, err = d.beginForward(ctx, t, v)
	} else {
		_, err = d.beginBackward(ctx, t, v)
	}
	if err != nil {
		return err
	}
	d.watch.start(d.compute)
	return nil
}

// part issues an op of a task, or in simulated time its part of it.
func (d ringCompiler) part(ctx context.Context, t *localStage, s *step, f *inFlight) error {
	o := &t.ops[1].Tasks[s.Kind][s.op]
	if d.paced != nil {
		d.compute.Launch(table.Prepared{Launch: d.paced[order.TaskKey{Kind: s.Kind, Stage: s.Stage, Residue: s.op}]})
	} else if err := d.op(ctx, t, o, f); err != nil {
		return err
	}
	if s.Kind != pipeline.F || s.op != t.ring.leaves || f.from == nil {
		return nil
	}
	d.compute.Record(f.from.freed[f.block])
	d.leaves(f)
	return nil
}

// carries issues a transfer.
func (d ringCompiler) carries(t *localStage, s *step, v order.Instance) {
	f := t.find(v.Minibatch)
	sb, m, q := &t.slabs[f.slab], &t.ops[1].Swaps[s.swap], d.queueOn(s.on)
	d.note(table.Command{Verb: table.DoBegin})
	switch {
	case s.Kind == pipeline.B:
		t.ring.copy(q, sb.items[m.To].Part(0, m.Bytes), sb.hostCopies[s.swap])
	case m.From == none:
		d.entryGoes(t, f, q, sb.hostCopies[s.swap])
	default:
		t.ring.copy(q, sb.hostCopies[s.swap], sb.items[m.From].Part(0, m.Bytes))
	}
	d.note(table.Command{Verb: table.DoEnd, On: q})
}

// comes copies the images of a minibatch whose forward is to come, which is what is blamed when that fails.
func (d ringCompiler) comes(t *localStage, v order.Instance) {
	p := &d.staging[t.stage]
	i := p.arrivals % stagingSlots
	p.arrivals++
	d.fillsSlot(t, i)
	d.note(table.Command{Verb: table.DoBegin})
	sb := &t.slabs[t.ring.slot(v.Minibatch)]
	t.ring.copy(d.batches, sb.images[0].Part(0, p.images[i].Bytes), p.images[i])
	d.note(table.Command{Verb: table.DoEnd, On: d.batches})
}

// copy copies between host and device in pieces.
func (r *ring) copy(q table.Queue, dst, src runtime.Span) {
	for at := int64(0); at < src.Bytes; at += r.piece {
		n := min(r.piece, src.Bytes-at)
		q.Copy(dst.Part(at, n), src.Part(at, n))
	}
}

// entryGoes copies the input of a stage to the host. The block in which it has come is free when that is done, and the last op
// of the forward that reads it: its sender waits for both.
func (d ringCompiler) entryGoes(t *localStage, f *inFlight, q table.Queue, hostCopy runtime.Span) {
	if f.from == nil { // the images, which are in the ring
		t.ring.copy(q, hostCopy, f.entry.Part(0, hostCopy.Bytes))
		return
	}
	q.Wait(f.from.arrived[f.block])
	t.ring.copy(q, hostCopy, f.entry.Part(0, hostCopy.Bytes))
	q.Record(f.from.copied[f.block])
	d.leaves(f)
}

// leaves counts what is done with the input of a stage whose input goes to the host: copied, and read for the last time. Then the
// sender may have its block.
func (d ringCompiler) leaves(f *inFlight) {
	if f.left = !f.left; f.left {
		return
	}
	from := f.from
	f.from = nil
	d.grant(from, f.block)
}

// ends ends a task.
func (d ringCompiler) ends(t *localStage, v order.Instance, f *inFlight) {
	d.watch.end(d.compute)
	if v.Kind == pipeline.F {
		d.endForward(t, f)
		return
	}
	d.endBackward(t, v, f)
}
