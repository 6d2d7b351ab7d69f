package improve

import (
	"iter"
	"slices"

	"plimsoll/planner/schedule"
)

// keeps no longer drops an activation at a forward_discard that is computed again later: it stays, or is offloaded
// meanwhile, and the run of forwards that computed it again goes.
func (s *Search) keeps() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for p, op := range s.best {
			if op.Kind != schedule.ForwardDiscard {
				continue
			}
			q := s.next(p+1, op.Layer-1, schedule.ForwardCheckpoint, schedule.ForwardDiscard)
			if q < 0 {
				continue
			}
			run := s.run(q)
			if !yield(without(s.kept(p), run)) || !yield(s.away(without(s.kept(p), run), op.Layer, p, run[0])) {
				return
			}
		}
	}
}

// kept is the best sequence with a forward_discard that keeps its input.
func (s *Search) kept(p int) schedule.Sequence {
	seq := s.edit()
	seq[p].Kind = schedule.ForwardCheckpoint
	return seq
}

// next returns the first position from p on of an op of the layer and one of the kinds, -1 when there is none.
func (s *Search) next(p, layer int, kinds ...schedule.Kind) int {
	for ; p < len(s.best); p++ {
		if s.best[p].Layer == layer && slices.Contains(kinds, s.best[p].Kind) {
			return p
		}
	}
	return -1
}

// run returns the positions of the forwards that lead to the one at q, from a forward_checkpoint on.
func (s *Search) run(q int) []int {
	out, layer := []int{q}, s.best[q].Layer
	for p := q - 1; p >= 0 && s.best[out[0]].Kind == schedule.ForwardDiscard; p-- {
		switch op := s.best[p]; {
		case op.Kind.Transfer():
			continue
		case op.Layer == layer-1 && (op.Kind == schedule.ForwardDiscard || op.Kind == schedule.ForwardCheckpoint):
			out, layer = slices.Insert(out, 0, p), layer-1
		default:
			return out
		}
	}
	return out
}

// saves makes the first forward of a layer a forward_all, so that the later one can go. Its saved set stays, or is
// offloaded meanwhile, and so does its input if that was dropped.
func (s *Search) saves() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for p, op := range s.best {
			if op.Kind != schedule.ForwardCheckpoint && op.Kind != schedule.ForwardDiscard {
				continue
			}
			q := s.next(p+1, op.Layer, schedule.ForwardAll)
			reader := s.nextCompute(p + 1)
			if q < 0 || reader > q {
				continue
			}
			if !s.savesAt(p, q, reader, yield) {
				return
			}
		}
	}
}

// nextCompute returns the position of the first compute op from p on.
func (s *Search) nextCompute(p int) int {
	for s.best[p].Kind.Transfer() {
		p++
	}
	return p
}

// savesAt yields the candidates for the forward at p, the forward_all at q, and the op that reads what p computes.
func (s *Search) savesAt(p, q, reader int, yield func(schedule.Sequence) bool) bool {
	layer := s.best[p].Layer
	gone := []int{q}
	if before := s.lastCompute(q - 1); s.best[p].Kind == schedule.ForwardDiscard && s.best[before].Layer == layer-1 &&
		s.best[before].Kind != schedule.Backward {
		gone = append(s.run(before), q)
	}
	made := func() schedule.Sequence {
		seq := s.edit()
		seq[p].Kind = schedule.ForwardAll
		if reader < gone[0] && seq[reader].Kind == schedule.ForwardDiscard {
			seq[reader].Kind = schedule.ForwardCheckpoint
		}
		return without(seq, gone)
	}
	if !yield(made()) {
		return false
	}
	if reader >= gone[0] {
		return true
	}
	return yield(s.away(made(), layer+1, reader, gone[0])) &&
		yield(s.away(s.away(made(), layer+1, reader, gone[0]), layer, p, gone[0]+1)) &&
		yield(s.away(made(), layer, p, gone[0]))
}

// lastCompute returns the position of the last compute op up to p.
func (s *Search) lastCompute(p int) int {
	for p > 0 && s.best[p].Kind.Transfer() {
		p--
	}
	return p
}

// recomputes drops an activation instead of offloading it, and computes it again, from the nearest one that is stored
// then, where it was prefetched.
func (s *Search) recomputes() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for p, op := range s.best {
			if op.Kind != schedule.Offload {
				continue
			}
			pair := s.pair(p)
			reader := s.nextCompute(p + 1)
			if len(pair) != 2 || pair[1] < reader || s.best[reader] != (schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: op.Layer}) {
				continue
			}
			before := stored(s.c, s.best[:pair[1]])
			for j := op.Layer - 2; j >= 0; j-- {
				if before.Stored(j) == schedule.Nothing {
					continue
				}
				seq := s.edit()
				seq[reader].Kind = schedule.ForwardDiscard
				seq = slices.Replace(seq, pair[1], pair[1]+1, chainOf(j+1, op.Layer-1)...)
				if !yield(slices.Delete(seq, p, p+1)) {
					return
				}
				break
			}
		}
	}
}

// chainOf returns F^ck_s, F^∅_{s+1}, ..., F^∅_t.
func chainOf(s, t int) []schedule.Op {
	out := []schedule.Op{{Kind: schedule.ForwardCheckpoint, Layer: s}}
	for l := s + 1; l <= t; l++ {
		out = append(out, schedule.Op{Kind: schedule.ForwardDiscard, Layer: l})
	}
	return out
}

// shrinks stores only the output of a layer instead of its saved set, whether that is offloaded or not, and runs its
// forward_all again directly before the backward.
func (s *Search) shrinks() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for p, op := range s.best {
			if op.Kind != schedule.ForwardAll {
				continue
			}
			q := s.next(p+1, op.Layer, schedule.Backward)
			if q < 0 || s.nextCompute(p+1) == q {
				continue
			}
			seq := slices.Insert(s.edit(), q, op)
			seq[p].Kind = schedule.ForwardCheckpoint
			if !yield(seq) {
				return
			}
		}
	}
}
