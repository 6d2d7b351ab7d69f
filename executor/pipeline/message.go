package pipeline

import (
	"context"

	"plimsoll/runtime"
)

// message issues a communication of the plan, in its turn on the link.
func (d *driver) message(ctx context.Context, l *channel, v instance, ready runtime.Event, src runtime.Span) error {
	q, b := d.links[l.to], d.halfDuplex[l.to]
	if err := b.acquire(ctx, d.bound, v, q); err != nil {
		return err
	}
	if err := d.sendTimed(ctx, l, &v, v.minibatch, ready, src); err != nil {
		return err
	}
	return b.release(d.bound, v, q)
}

// send sends what is no task of the plan.
func (d *driver) send(ctx context.Context, l *channel, number int, ready runtime.Event, src runtime.Span) error {
	return d.sendTimed(ctx, l, nil, number, ready, src)
}

// sendTimed sends: the receiver grants a block, the copy waits for what it reads and for the block.
func (d *driver) sendTimed(ctx context.Context, l *channel, v *instance, number int, ready runtime.Event, src runtime.Span) error {
	block, err := l.granted(ctx)
	if err != nil {
		return err
	}
	q := d.links[l.to]
	watch := d.watch
	if v == nil {
		watch = nil
	}
	if err := q.wait(ready); err != nil {
		return err
	}
	if err := q.wait(l.freed[block]); err != nil {
		return err
	}
	if l.copied != nil {
		if err := q.wait(l.copied[block]); err != nil {
			return err
		}
	}
	if err := watch.start(q, v); err != nil {
		return err
	}
	if err := q.send(d.e.driver(l.to), l.blocks[block].Part(0, src.Bytes), src); err != nil {
		return err
	}
	if err := watch.end(q); err != nil {
		return err
	}
	if err := q.record(l.arrived[block]); err != nil {
		return err
	}
	l.latest = block
	l.arrivals <- arrival{number, block}
	return nil
}

// sendOutput issues CF: the output of a stage leaves for the stage behind it.
func (d *driver) sendOutput(ctx context.Context, t *localStage, v instance) error {
	l, out := t.out[v.to], t.opsOf(v.minibatch).out
	if out.in == inSentOutput {
		return d.sendFrom(ctx, &t.outputs, l, v, 0, 0)
	}
	f := t.find(v.minibatch)
	return d.message(ctx, l, v, t.slabs[f.slab].forward, t.output(f).Part(0, l.bytes))
}
