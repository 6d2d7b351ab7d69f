package pipeline

import (
	"slices"

	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
)

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
func (b *sendBuffer) take(q table.Queue, minibatch int) runtime.Span {
	i := pop(&b.free)
	x := &b.slots[i]
	b.unsent = append(b.unsent, unsentMessage{minibatch, i, len(x.sent)})
	for _, ev := range x.sent {
		q.Wait(ev)
	}
	return x.span
}

// find returns the position of a minibatch among those that leave; none: it does not.
func (b *sendBuffer) find(minibatch int) int {
	return slices.IndexFunc(b.unsent, func(x unsentMessage) bool { return x.minibatch == minibatch })
}

// seal says that q has written what leaves of a minibatch, if anything does.
func (b *sendBuffer) seal(q table.Queue, minibatch int) {
	if i := b.find(minibatch); i >= 0 {
		q.Record(b.slots[b.unsent[i].slot].ready)
	}
}
