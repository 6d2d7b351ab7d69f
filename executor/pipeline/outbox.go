package pipeline

import (
	"context"
	"slices"

	"plimsoll/runtime"
)

// outbox is the memory in which what a stage sends waits until it has been copied, where nothing keeps it longer: δ of the
// input, and an output that only the next stage reads. Its blocks are taken in turn.
type outbox struct {
	exits   []exit
	spare   []int // exits that hold nothing
	leaving []leaving
}

// exit is a block for one tensor on its way to another device.
type exit struct {
	span        runtime.Span
	ready, sent runtime.Event // it has been written; it has been copied
}

// leaving is what lies in an exit, until its communication is issued.
type leaving struct{ minibatch, exit int }

// lay places n exits.
func (b *outbox) lay(g *ground, n int, bytes int64) {
	for range n {
		b.exits = append(b.exits, exit{span: g.take(bytes)})
	}
}

// begin empties it.
func (b *outbox) begin() { b.spare, b.leaving = numbers(b.spare, len(b.exits)), b.leaving[:0] }

// take returns an exit for a minibatch; q waits until it may be written.
func (b *outbox) take(q queue, minibatch int) (runtime.Span, error) {
	i := pop(&b.spare)
	b.leaving = append(b.leaving, leaving{minibatch, i})
	return b.exits[i].span, q.wait(b.exits[i].sent)
}

// find returns the position of a minibatch among those that leave; none: it does not.
func (b *outbox) find(minibatch int) int {
	return slices.IndexFunc(b.leaving, func(x leaving) bool { return x.minibatch == minibatch })
}

// seal says that q has written what leaves of a minibatch, if anything does.
func (b *outbox) seal(q queue, minibatch int) error {
	if i := b.find(minibatch); i >= 0 {
		return q.record(b.exits[b.leaving[i].exit].ready)
	}
	return nil
}

// sendFrom issues the communication of what lies in an outbox.
func (d *driver) sendFrom(ctx context.Context, b *outbox, l *lane, v visit) error {
	i := b.find(v.minibatch)
	n := b.leaving[i].exit
	x := &b.exits[n]
	if err := d.message(ctx, l, v, x.ready, x.span); err != nil {
		return err
	}
	b.spare, b.leaving = append(b.spare, n), slices.Delete(b.leaving, i, i+1)
	return d.links[v.to].record(x.sent)
}
