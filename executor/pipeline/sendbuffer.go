package pipeline

import (
	"context"
	"slices"

	"plimsoll/runtime"
)

// sendBuffer is the memory in which what a stage sends waits until it has been copied, where nothing keeps it longer: δ of the
// input, and an output that only the next stage reads. Its blocks are taken in turn.
type sendBuffer struct {
	slots  []sendSlot
	free   []int // slots that hold nothing
	unsent []unsentMessage
}

// sendSlot is a block for what is on its way to other devices, in one message or in several.
type sendSlot struct {
	span  runtime.Span
	ready runtime.Event   // it has been written
	sent  []runtime.Event // by message: it has been copied
}

// unsentMessage is what lies in a slot, until its communications are issued: how many are left.
type unsentMessage struct{ minibatch, slot, left int }

// layOut places n slots, each for so many messages.
func (b *sendBuffer) layOut(g *allocator, n int, bytes int64, messages int) {
	for range n {
		b.slots = append(b.slots, sendSlot{span: g.alloc(bytes), sent: make([]runtime.Event, messages)})
	}
}

// events returns where the events of all slots go.
func (b *sendBuffer) events() (all []*runtime.Event) {
	for i := range b.slots {
		x := &b.slots[i]
		all = append(append(all, &x.ready), each(x.sent)...)
	}
	return all
}

// begin empties it.
func (b *sendBuffer) begin() { b.free, b.unsent = numbers(b.free, len(b.slots)), b.unsent[:0] }

// take returns a slot for a minibatch; q waits until it may be written.
func (b *sendBuffer) take(q queue, minibatch int) (runtime.Span, error) {
	i := pop(&b.free)
	x := &b.slots[i]
	b.unsent = append(b.unsent, unsentMessage{minibatch, i, len(x.sent)})
	for _, ev := range x.sent {
		if err := q.wait(ev); err != nil {
			return x.span, err
		}
	}
	return x.span, nil
}

// find returns the position of a minibatch among those that leave; none: it does not.
func (b *sendBuffer) find(minibatch int) int {
	return slices.IndexFunc(b.unsent, func(x unsentMessage) bool { return x.minibatch == minibatch })
}

// seal says that q has written what leaves of a minibatch, if anything does.
func (b *sendBuffer) seal(q queue, minibatch int) error {
	if i := b.find(minibatch); i >= 0 {
		return q.record(b.slots[b.unsent[i].slot].ready)
	}
	return nil
}

// sendFrom issues a communication of what lies in a send buffer, one of the messages of its slots: what is from an offset on.
func (d taskCompiler) sendFrom(ctx context.Context, b *sendBuffer, l *channel, v instance, message int, offset int64) error {
	i := b.find(v.minibatch)
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
