package remat

import (
	"cmp"
	"container/heap"
	"context"
	"slices"

	"plimsoll/planner/schedule"
)

// tree is a best-first branch and bound (A*) over the states of a space. A state is kept once, with the least excess that it was
// reached with, and is left when that and what is still to come reach the cut.
type tree struct {
	*space
	cut   int64 // sequences of so much excess are of no use
	nodes []node
	index map[holding]int32
	open  openHeap
	moves []move // buffer
}

type node struct {
	holding
	ticks  int64 // excess so far
	parent int32
	op     schedule.Op
}

// found is the result of a search.
type found struct {
	seq   schedule.Sequence // nil: nothing below the cut
	ticks int64             // its excess, or the cut
	least int64             // no sequence has less excess, up to the cut
	nodes int               // states kept
}

// optimal reports whether nothing is better.
func (f *found) optimal() bool { return f.least >= f.ticks }

// search returns the best sequence of the space with less excess than cut. It ends early, and says so by least, when it has kept so
// many states. Errors: the context's.
func (p *space) search(ctx context.Context, cut int64, most int) (*found, error) {
	t := &tree{space: p, cut: cut, index: map[holding]int32{}}
	t.offer(p.from, 0, -1, schedule.Op{})
	for steps := 0; len(t.open) > 0; steps++ {
		if steps%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		least := t.open[0].bound
		if len(t.nodes) >= most {
			return &found{ticks: cut, least: least, nodes: len(t.nodes)}, nil
		}
		at := heap.Pop(&t.open).(openNode)
		now := t.nodes[at.node]
		if now.ticks != at.ticks {
			continue // a better way here was found since
		}
		if now.holding == p.to {
			return &found{seq: t.path(at.node), ticks: now.ticks, least: now.ticks, nodes: len(t.nodes)}, nil
		}
		t.moves = p.moves(t.moves[:0], now.holding)
		for _, m := range t.moves {
			t.offer(m.to, now.ticks+m.ticks, at.node, m.op)
		}
	}
	return &found{ticks: cut, least: cut, nodes: len(t.nodes)}, nil
}

// offer keeps a state unless a way to it that is as good is known, or it is of no use.
func (t *tree) offer(s holding, ticks int64, parent int32, op schedule.Op) {
	if ticks >= t.cut {
		return
	}
	at, known := t.index[s]
	if known && t.nodes[at].ticks <= ticks {
		return
	}
	rest, ok := t.rest(s)
	if !ok || ticks+rest >= t.cut {
		return
	}
	if !known {
		at = int32(len(t.nodes))
		t.index[s] = at
		t.nodes = append(t.nodes, node{})
	}
	t.nodes[at] = node{s, ticks, parent, op}
	heap.Push(&t.open, openNode{bound: ticks + rest, ticks: ticks, backs: int32(s.backs()), node: at})
}

func (t *tree) path(at int32) (seq schedule.Sequence) {
	for ; t.nodes[at].parent >= 0; at = t.nodes[at].parent {
		seq = append(seq, t.nodes[at].op)
	}
	slices.Reverse(seq)
	return seq
}

// openHeap has the state with the least bound first; of equal ones that with the most backwards, then the newest.
type openHeap []openNode

type openNode struct {
	bound, ticks int64
	backs, node  int32
}

func (h openHeap) Len() int { return len(h) }
func (h openHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].bound, h[j].bound), cmp.Compare(h[j].backs, h[i].backs), cmp.Compare(h[j].node, h[i].node)) < 0
}
func (h openHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *openHeap) Push(x any)   { *h = append(*h, x.(openNode)) }
func (h *openHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
