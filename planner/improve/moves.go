package improve

import (
	"iter"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// moves are the kinds of moves, cheap ones first. Each yields candidates made from the best sequence; many break a rule
// or do not fit, which the simulation finds out. A candidate is valid until the next one.
var moves = []func(*Search) iter.Seq[schedule.Sequence]{
	(*Search).drops, (*Search).keeps, (*Search).saves, (*Search).adds, (*Search).recomputes, (*Search).shrinks, (*Search).shifts,
}

// edit starts a candidate: a copy of the best sequence.
func (s *Search) edit() schedule.Sequence {
	s.buffer = append(s.buffer[:0], s.best...)
	return s.buffer
}

// drops leaves out an offload with its prefetches.
func (s *Search) drops() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for p, op := range s.best {
			if op.Kind == schedule.Offload && !yield(without(s.edit(), s.pair(p))) {
				return
			}
		}
	}
}

// pair returns the position of an offload and those of its prefetches, up to the next offload of the same layer.
func (s *Search) pair(p int) []int {
	out, layer := []int{p}, s.best[p].Layer
	for q := p + 1; q < len(s.best); q++ {
		if op := s.best[q]; op.Layer == layer && op.Kind.Transfer() {
			if op.Kind == schedule.Offload {
				break
			}
			out = append(out, q)
		}
	}
	return out
}

// without leaves out the ops at rising positions.
func without(seq schedule.Sequence, positions []int) schedule.Sequence {
	for _, p := range slices.Backward(positions) {
		seq = slices.Delete(seq, p, p+1)
	}
	return seq
}

// near is up to how far every shift is tried; farther ones grow by half.
const near = 16

// shifts moves a transfer, to the next places first.
func (s *Search) shifts() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for d := 1; d < len(s.best); d += 1 + max(0, d-near)/2 {
			for p, op := range s.best {
				if !op.Kind.Transfer() {
					continue
				}
				for _, q := range [...]int{p - d, p + d} {
					if q >= 0 && q < len(s.best) && !yield(slices.Insert(slices.Delete(s.edit(), p, p+1), q, op)) {
						return
					}
				}
			}
		}
	}
}

// adds offloads an activation between two ops that read it.
func (s *Search) adds() iter.Seq[schedule.Sequence] {
	return func(yield func(schedule.Sequence) bool) {
		for _, g := range Gaps(s.c, s.best) {
			for _, q := range s.arrivals(g) {
				if !yield(s.away(s.edit(), g.Layer, g.From, q)) {
					return
				}
			}
		}
	}
}

// away puts the pair of transfers into a sequence, before the ops at positions from < to.
func (s *Search) away(seq schedule.Sequence, layer, from, to int) schedule.Sequence {
	seq = slices.Insert(seq, to, schedule.Op{Kind: schedule.Prefetch, Layer: layer})
	return slices.Insert(seq, from, schedule.Op{Kind: schedule.Offload, Layer: layer})
}

// arrivals returns the positions before which the prefetch of a gap may stand, the latest first. These are
// directly before the op that reads it, and around the position at which it must begin to end in time.
func (s *Search) arrivals(g Gap) []int {
	seconds := float64(g.bytes) / s.limits.Link.Bandwidth
	q := g.To
	for q > g.From+1 && s.start[q] > s.start[g.To]-seconds {
		q--
	}
	out := []int{g.To}
	for _, p := range [...]int{g.To - 1, q + 1, q, q - 1, q - 2} {
		if p > g.From && p < g.To && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Gaps returns, in order of their ends, the times between two ops that read the same activation, in which it is stored
// and could be away. Positions are those of the sequence, which must keep the rules; what its transfers move is left out
// while it is away.
func Gaps(c *chain.Chain, seq schedule.Sequence) []Gap {
	f := finder{t: schedule.Follow(c), read: slices.Repeat([]int{none}, c.Len()+1), away: make([]bool, c.Len()+1)}
	for p, op := range seq {
		if op.Kind.Transfer() {
			f.away[op.Layer-1] = op.Kind == schedule.Offload
			f.read[op.Layer-1] = none
		} else {
			if op.Kind == schedule.Backward && op.Layer < c.Len() {
				f.reads(p, op.Layer)
			}
			f.reads(p, op.Layer-1)
		}
		mustDo(f.t, op)
		f.forget()
	}
	return f.gaps
}

// finder finds gaps.
type finder struct {
	t    *schedule.Follower
	read []int // position of the last op that has read the activation since it came, or none
	away []bool
	gaps []Gap
}

// none stands for no position.
const none = -1

// reads notes that the op at p reads activation i.
func (f *finder) reads(p, i int) {
	if f.away[i] {
		return
	}
	if f.read[i] != none {
		f.gaps = append(f.gaps, Gap{Layer: i + 1, From: f.read[i], To: p, bytes: f.t.Bytes(i)})
	}
	f.read[i] = p
}

// forget drops what is no longer stored.
func (f *finder) forget() {
	for i := range f.read {
		if f.t.Stored(i) == schedule.Nothing {
			f.read[i] = none
		}
	}
}
