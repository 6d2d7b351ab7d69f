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

// level is the memory held at an instant.
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

// stay is a hold and when, for the minibatch whose number is the residue: its first instant counts, its last one does not.
type stay struct {
	hold
	from, to ticks
}

// before returns the tolerance before an end, so that what ends when something else starts does not count, whatever was rounded.
func before(from, to, eps ticks) ticks {
	if less(add(eps, eps), sub(to, from)) {
		return sub(to, eps)
	}
	if less(to, from) {
		return from
	}
	return to
}

// highest returns the peak of stays that repeat with a period; nil: they do not repeat.
func highest(stays []stay, period ticks, stages int) *peak {
	base := newLevel(stages)
	var edges []edge[ticks]
	for i := range stays {
		edges = base.edges(edges, &stays[i], period)
	}
	return climb(base, sorted(edges, ticks.Cmp))
}

// edges adds the edges of a stay. As often as it lasts a whole period, and once more when it is held where periods begin,
// it counts from the start.
func (l *level) edges(edges []edge[ticks], s *stay, period ticks) []edge[ticks] {
	from, length := s.from, sub(s.to, s.from)
	if period != nil {
		full := periods(length, period)
		l.change(&s.hold, full.Int64())
		length = modulo(length, period)
		if length.Sign() == 0 && full.Sign() > 0 {
			return edges
		}
		from = modulo(from, period)
	}
	to := add(from, length)
	if period != nil && less(period, to) {
		l.change(&s.hold, 1)
		to.Sub(to, period)
	}
	return append(edges, edge[ticks]{at: from, phase: enters, hold: &s.hold}, edge[ticks]{at: to, phase: leaving(length.Sign() == 0), hold: &s.hold})
}
