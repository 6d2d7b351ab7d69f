package executor

import (
	"plimsoll/executor/internal/pack"
	"plimsoll/planner/schedule"
)

// Streams of a step.
const (
	streamCompute = iota
	streamToDevice
	streamToHost
	streams
)

// streamsOf returns the stream of every op. On one link transfers of both directions share a stream, in order of
// appearance; a duplex link has one per direction.
func streamsOf(seq schedule.Sequence, duplex bool) []int {
	stream := make([]int, len(seq))
	for p, op := range seq {
		switch {
		case !op.Kind.Transfer():
		case op.Kind == schedule.Offload && duplex:
			stream[p] = streamToHost
		default:
			stream[p] = streamToDevice
		}
	}
	return stream
}

// waits returns, for every op, the ops of other streams that it must wait for:
//
//   - a transfer waits for the compute ops before it in the sequence;
//   - whoever reads a block waits for the op that writes it, and the other way around;
//   - whoever takes memory waits for all ops that used it before.
//
// What streams and earlier waits order already is left out. Every wait is for an op that starts earlier on the
// timeline, so the step cannot get stuck, whatever its ops take.
func (b *bound) waits() [][]int {
	t := b.layout
	all := make([][]int, len(t.seq))
	if !transfers(t.seq) {
		return all
	}
	w := newWaiter(b)
	for _, p := range t.Order {
		w.begin(p)
		w.rules(p)
		w.operands(p)
		w.memory(p)
		all[p] = w.end(p)
	}
	return all
}

// waiter finds waits in issue order. A clock counts, per stream, the ops that are certain to have ended.
type waiter struct {
	*bound
	clock  [streams][streams]int // of each stream, now
	ended  [][streams]int        // of each op, when it has ended
	number []int                 // of each op, on its stream
	count  [streams]int          // ops issued to each stream
	need   [streams]int          // per stream, the latest op that the current one must wait for; none
	before []int                 // per op, the compute op before it in the sequence; none
	users  [][]int               // per block of the arena, the ops that use it
	moved  []int                 // blocks that a transfer uses
	copies [][]int               // per copy in the host slab, the ops that use it
}

func newWaiter(b *bound) *waiter {
	t := b.layout
	w := &waiter{
		bound: b, ended: make([][streams]int, len(t.seq)), number: make([]int, len(t.seq)), before: make([]int, len(t.seq)),
		users: make([][]int, len(t.items)), copies: make([][]int, len(t.host)),
	}
	last := none
	for p, op := range t.seq {
		w.before[p] = last
		if !op.Kind.Transfer() {
			last = p
		}
		for _, block := range t.ops[p].arena() {
			if block == none {
				continue
			}
			if op.Kind.Transfer() && !w.isMoved(block) {
				w.moved = append(w.moved, block)
			}
			w.users[block] = append(w.users[block], p)
		}
		if block := t.ops[p].host; block != none {
			w.copies[block] = append(w.copies[block], p)
		}
	}
	return w
}

// isMoved reports whether a block is in the list of those that a transfer uses; blocks enter it in any order.
func (w *waiter) isMoved(block int) bool {
	for _, p := range w.users[block] {
		if w.layout.seq[p].Kind.Transfer() {
			return true
		}
	}
	return false
}

func (w *waiter) begin(p int) {
	w.number[p] = w.count[w.stream[p]]
	w.count[w.stream[p]]++
	w.need = [streams]int{none, none, none}
}

// require makes the current op wait for op q.
func (w *waiter) require(q int) {
	if q == none {
		return
	}
	if s := w.stream[q]; w.need[s] == none || w.number[w.need[s]] < w.number[q] {
		w.need[s] = q
	}
}

func (w *waiter) rules(p int) {
	if w.layout.seq[p].Kind.Transfer() {
		w.require(w.before[p])
	}
}

// operands requires those that started before and wrote what op p reads, or read what it overwrites. The step's input
// is there already.
func (w *waiter) operands(p int) {
	t := w.layout
	for _, block := range t.ops[p].arena() {
		if block == none {
			continue
		}
		for _, q := range w.users[block] {
			if t.Start[q] < t.Start[p] && (w.writes(q, block) || w.writes(p, block)) {
				w.require(q)
			}
		}
	}
	if block := t.ops[p].host; block != none && t.host[block].First < t.Start[p] {
		w.require(t.Order[t.host[block].First])
	}
}

// writes reports whether an op writes one of its blocks: the op that makes it, and the backward, which works in the
// saved set that it consumes. (An offload of that set directly before the backward is of no use, but it is allowed.)
func (w *waiter) writes(p, block int) bool {
	t := w.layout
	return t.items[block].First == t.Start[p] && block != 0 || t.seq[p].Kind == schedule.Backward && t.ops[p].output == block
}

// memory requires the users of what lay where op p's new blocks lie. Compute ops follow each other anyway: they look
// at the blocks of transfers alone.
func (w *waiter) memory(p int) {
	t := w.layout
	now := t.Start[p]
	for _, block := range t.ops[p].arena() {
		if block == none || block == 0 || t.items[block].First != now {
			continue
		}
		if w.stream[p] == streamCompute {
			for _, old := range w.moved {
				w.inherit(t.items, w.users, old, block)
			}
			continue
		}
		for old := range t.items {
			w.inherit(t.items, w.users, old, block)
		}
	}
	if block := t.ops[p].host; block != none && t.host[block].First == now {
		for old := range t.host {
			w.inherit(t.host, w.copies, old, block)
		}
	}
}

// inherit requires the users of an old item if a new one lies on it.
func (w *waiter) inherit(items []pack.Item, users [][]int, old, block int) {
	a, b := &items[old], &items[block]
	if a.Last < b.First && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes {
		for _, q := range users[old] {
			w.require(q)
		}
	}
}

// end returns the waits of op p that are needed and counts them as done.
func (w *waiter) end(p int) (list []int) {
	s := w.stream[p]
	clock := &w.clock[s]
	for from, q := range w.need {
		if from != s && q != none && !w.implied(s, from, w.number[q]) {
			list = append(list, q)
		}
	}
	for _, q := range list {
		for k, n := range w.ended[q] {
			clock[k] = max(clock[k], n)
		}
	}
	clock[s] = w.number[p] + 1
	w.ended[p] = *clock
	return list
}

// implied reports whether stream s, or another op that it must wait for, has waited for op number n of stream from.
func (w *waiter) implied(s, from, n int) bool {
	if w.clock[s][from] > n {
		return true
	}
	for other, q := range w.need {
		if other != from && q != none && w.ended[q][from] > n {
			return true
		}
	}
	return false
}
