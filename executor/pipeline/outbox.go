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

// exit is a block for what is on its way to other devices, in one message or in several.
type exit struct {
	span  runtime.Span
	ready runtime.Event   // it has been written
	sent  []runtime.Event // by message: it has been copied
}

// leaving is what lies in an exit, until its communications are issued: how many are left.
type leaving struct{ minibatch, exit, left int }

// lay places n exits, each for so many messages.
func (b *outbox) lay(g *ground, n int, bytes int64, messages int) {
	for range n {
		b.exits = append(b.exits, exit{span: g.take(bytes), sent: make([]runtime.Event, messages)})
	}
}

// events returns where the events of all exits go.
func (b *outbox) events() (all []*runtime.Event) {
	for i := range b.exits {
		x := &b.exits[i]
		all = append(all, &x.ready)
		for j := range x.sent {
			all = append(all, &x.sent[j])
		}
	}
	return all
}

// begin empties it.
func (b *outbox) begin() { b.spare, b.leaving = numbers(b.spare, len(b.exits)), b.leaving[:0] }

// take returns an exit for a minibatch; q waits until it may be written.
func (b *outbox) take(q queue, minibatch int) (runtime.Span, error) {
	i := pop(&b.spare)
	x := &b.exits[i]
	b.leaving = append(b.leaving, leaving{minibatch, i, len(x.sent)})
	for _, ev := range x.sent {
		if err := q.wait(ev); err != nil {
			return x.span, err
		}
	}
	return x.span, nil
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

// sendFrom issues a communication of what lies in an outbox, one of the messages of its exits: what is from an offset on.
func (d *driver) sendFrom(ctx context.Context, b *outbox, l *lane, v visit, message int, offset int64) error {
	i := b.find(v.minibatch)
	n := b.leaving[i].exit
	x := &b.exits[n]
	if err := d.message(ctx, l, v, x.ready, x.span.Part(offset, l.bytes)); err != nil {
		return err
	}
	if b.leaving[i].left--; b.leaving[i].left == 0 {
		b.spare, b.leaving = append(b.spare, n), slices.Delete(b.leaving, i, i+1)
	}
	return d.links[v.to].record(x.sent[message])
}
