package pipeline

import (
	"context"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
)

// message issues a communication of the plan, in its turn on the link. An event is recorded when it has left, unless that is nil: before
// the other end has the link, which it takes when it needs it.
func (d *compiler) message(ctx context.Context, l *channel, v order.Instance, ready runtime.Event, src runtime.Span, left runtime.Event) error {
	q, b := d.links[l.to], d.halfDuplex[l.to]
	if err := b.acquire(ctx, d.bound, v, q); err != nil {
		return err
	}
	if err := d.send(ctx, l, &v, d.lay.order.Number(v), ready, src); err != nil {
		return err
	}
	if left != nil {
		q.Record(left)
	}
	b.release(d.bound, v, q)
	return nil
}

// send sends: the receiver grants a block, the copy waits for what it reads and for the block. It is timed as a task of the plan,
// unless that is nil.
func (d *compiler) send(ctx context.Context, l *channel, v *order.Instance, number int, ready runtime.Event, src runtime.Span) error {
	q, watch := d.links[l.to], d.watch
	if v == nil {
		watch = nil
	}
	block, err := d.granted(ctx, l)
	if err != nil {
		return err
	}
	q.Wait(ready)
	q.Wait(l.freed[block])
	if l.copied != nil {
		q.Wait(l.copied[block])
	}
	watch.start(q)
	dst := l.blocks[block].Part(0, src.Bytes)
	l.delivers(block, delivery{d.now.Minibatch + d.Recording.Ahead, dst})
	d.note(table.Command{Verb: table.DoCopy, On: q, To: d.lay.driver(l.to).Device, Channel: l, Dst: dst, Src: src})
	watch.end(q)
	q.Record(l.arrived[block])
	l.latest = block
	d.arrives(l, arrival{number, block})
	return nil
}

// received waits for the message of a number, and returns the block that it is in.
func (d *compiler) received(ctx context.Context, l *channel, number int) (block int, span runtime.Span, err error) {
	if block, err = d.take(ctx, l, number); err != nil {
		return block, span, err
	}
	d.compute.Wait(l.arrived[block])
	return block, l.blocks[block], nil
}

// release grants a block again, behind what the device has issued so far.
func (d *compiler) release(l *channel, block int) {
	d.compute.Record(l.freed[block])
	d.grant(l, block)
}

// sendOutput issues CF: the output of a stage leaves for the stage behind it.
func (d taskCompiler) sendOutput(ctx context.Context, t *localStage, v order.Instance) error {
	l, out := t.out[v.To], t.opsOf(v.Minibatch).Out
	if out.In == stageops.InSentOutput {
		return d.sendFrom(ctx, &t.outputs, l, v, 0, 0)
	}
	f := t.find(v.Minibatch)
	return d.message(ctx, l, v, t.slabs[f.slab].forward, t.output(f).Part(0, l.bytes), nil)
}

// grant gives a block back to the sender.
func (d *compiler) grant(l *channel, block int) {
	l.grants <- block
	d.noteTurn(table.DoGive, l.free[block])
}

// granted returns a block to send to, when the receiver has granted one.
func (d *compiler) granted(ctx context.Context, l *channel) (block int, err error) {
	if block, err = receive(ctx, l.grants); err == nil {
		d.noteTurn(table.DoTake, l.free[block])
	}
	return block, err
}

// arrives tells the receiver in which block a message is.
func (d *compiler) arrives(l *channel, a arrival) {
	l.arrivals <- a
	d.noteTurn(table.DoGive, l.sent[a.block])
}

// take returns the block in which the message of a minibatch arrives, when the sender has issued it.
func (d *compiler) take(ctx context.Context, l *channel, minibatch int) (block int, err error) {
	for i, a := range l.early {
		if a.minibatch == minibatch {
			l.early = slices.Delete(l.early, i, i+1)
			d.noteTurn(table.DoTake, l.sent[a.block])
			return a.block, nil
		}
	}
	for {
		a, err := receive(ctx, l.arrivals)
		if err != nil {
			return none, err
		}
		if a.minibatch == minibatch {
			d.noteTurn(table.DoTake, l.sent[a.block])
			return a.block, nil
		}
		l.early = append(l.early, a)
	}
}

// sendFrom issues a communication of what lies in a send buffer, one of the messages of its slots: what is from an offset on.
func (d taskCompiler) sendFrom(ctx context.Context, b *sendBuffer, l *channel, v order.Instance, message int, offset int64) error {
	i := b.find(v.Minibatch)
	n := b.unsent[i].slot
	x := &b.slots[n]
	if err := d.message(ctx, l, v, x.ready, x.span.Part(offset, l.bytes), x.sent[message]); err != nil {
		return err
	}
	if b.unsent[i].left--; b.unsent[i].left == 0 {
		b.free, b.unsent = append(b.free, n), slices.Delete(b.unsent, i, i+1)
	}
	return nil
}
