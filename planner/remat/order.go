package remat

import "plimsoll/planner/schedule"

// compute is one forward or backward of a layer. Systems that evict single tensors plan nothing else: an order of
// computations.
type compute struct {
	layer int
	back  bool
}

// never stands behind the last computation of an order.
const never = int(^uint(0) >> 1)

// sequenceOf turns an order of computations into a sequence. Every computation of the order must find its input in
// memory when nothing is dropped before it is computed again. The last forward before a layer's backward is a
// forward_all; another one drops its input when that is computed again before it is read again. A forward whose
// result is still there is left out. O(length of the order).
func sequenceOf(order []compute, layers int) schedule.Sequence {
	w := writer{next: nextUses(order, layers), stored: make([]store, layers+1)}
	w.stored[0] = bare
	for i, op := range order {
		w.write(i, op)
	}
	return w.seq
}

// store is the part of a layer that is in memory.
type store uint8

const (
	gone store = iota
	bare       // a_l
	full       // ā_l
)

type writer struct {
	next   []uses // by position in the order
	stored []store
	seq    schedule.Sequence
}

func (w *writer) write(i int, op compute) {
	l := op.layer
	switch {
	case op.back:
		w.seq = append(w.seq, backward(l))
		w.stored[l] = gone
		if w.stored[l-1] == bare && l > 1 {
			w.stored[l-1] = gone
		}
	case w.next[i].backward < w.next[i].forward:
		if w.stored[l] != full {
			w.seq = append(w.seq, all(l))
		}
		w.stored[l] = full
	case w.stored[l] != gone:
	case w.stored[l-1] == bare && l > 1 && w.next[i].source < w.next[i].reader:
		w.seq = append(w.seq, discard(l))
		w.stored[l-1], w.stored[l] = gone, bare
	default:
		w.seq = append(w.seq, checkpoint(l))
		w.stored[l] = bare
	}
}

// uses are the positions of the ops that follow a computation of layer l. These are the next forward and
// backward of l, the next forward of l-1, its source, and the next computation that reads a_{l-1}.
type uses struct{ forward, backward, source, reader int }

func nextUses(order []compute, layers int) []uses {
	forward, back := make([]int, layers+2), make([]int, layers+2)
	for l := range forward {
		forward[l], back[l] = never, never
	}
	next := make([]uses, len(order))
	for i := len(order) - 1; i >= 0; i-- {
		l := order[i].layer
		next[i] = uses{forward: forward[l], backward: back[l], source: forward[l-1], reader: min(forward[l], back[l])}
		if order[i].back {
			back[l] = i
		} else {
			forward[l] = i
		}
	}
	return next
}
