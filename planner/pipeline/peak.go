package pipeline

import (
	"cmp"
	"math/big"
	"slices"
)

// peak is the largest sum of what a device holds.
type peak struct {
	bytes *big.Int
	live  []int // of each stage: the most live minibatches, at any instant
	task  int   // the task whose start makes the peak; None when nothing is held
}

// phase orders the edges of one instant: what leaves goes before others enter, unless it has only just entered.
type phase int

const (
	leaves phase = iota
	enters
	leavesAtOnce
)

func leaving(atOnce bool) phase {
	if atOnce {
		return leavesAtOnce
	}
	return leaves
}

// edge is the begin or the end of a hold, at an instant of type T.
type edge[T any] struct {
	at    T
	phase phase
	hold  *hold
}

// sorted returns the holds that begin and end, in order.
func sorted[T any](edges []edge[T], compare func(x, y T) int) []edge[T] {
	slices.SortStableFunc(edges, func(a, b edge[T]) int { return cmp.Or(compare(a.at, b.at), cmp.Compare(a.phase, b.phase)) })
	return edges
}

// level is what is held at an instant.
type level struct {
	bytes *big.Int
	live  []int
}

func newLevel(stages int) *level { return &level{bytes: new(big.Int), live: make([]int, stages)} }

func (l *level) change(h *hold, times int64) {
	change := big.NewInt(h.bytes)
	l.bytes.Add(l.bytes, change.Mul(change, big.NewInt(times)))
	if h.stage != None {
		l.live[h.stage] += int(times)
	}
}

// climb passes sorted edges and returns the highest level on the way.
func climb[T any](l *level, edges []edge[T]) *peak {
	top := &peak{bytes: new(big.Int).Set(l.bytes), live: slices.Clone(l.live), task: None}
	for _, e := range edges {
		if e.phase != enters {
			l.change(e.hold, -1)
			continue
		}
		l.change(e.hold, 1)
		if c := l.bytes.Cmp(top.bytes); c > 0 || c == 0 && top.task == None {
			top.bytes.Set(l.bytes)
			top.task = e.hold.task
		}
		if s := e.hold.stage; s != None {
			top.live[s] = max(top.live[s], l.live[s])
		}
	}
	return top
}
