package residency

import (
	"slices"

	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// order is the forwards and backwards of a step, with what their activations cost.
type order struct {
	pattern pattern
	ops     []cycle.Op
	seconds []float64
	used    []int64 // bytes of activations in use while an op runs
	rest    []int64 // and before it; one more: behind the last
	leaves  []absence
	total   float64 // seconds
}

// absence is an activation between two ops that read it, or its making and the first of these: it may be on the host meanwhile.
type absence struct {
	activation, microbatch int
	bytes                  int64
	from, to               int // ops
}

// pattern says how the forwards of a step run.
type pattern struct {
	group int // microbatches that pass through a layer one after the other
	// segment[l] is the first layer of the segment that is computed again before its backwards, for each of its layers; 0: layer l saves
	// everything at once.
	segment []int
}

// arrange returns the order of a pattern; nil: it is none, or takes more memory than there is.
func (p *problem) arrange(t pattern) *order {
	b := orderBuilder{p: p, order: &order{pattern: t}}
	for first := 1; first <= p.microbatches; first += t.group {
		b.first, b.last = first, min(first+t.group-1, p.microbatches)
		b.forward()
		b.backward()
	}
	if !b.follow() {
		return nil
	}
	return b.order
}

// orderBuilder writes the ops of an order.
type orderBuilder struct {
	*order
	p           *problem
	first, last int // microbatches of the group
}

func (b *orderBuilder) add(kind schedule.Kind, layer, microbatch int) {
	b.ops = append(b.ops, cycle.Op{Kind: kind, Layer: layer, Microbatch: b.p.microbatch(microbatch)})
}

// all adds an op of every microbatch of the group.
func (b *orderBuilder) all(kind schedule.Kind, layer int) {
	for m := b.first; m <= b.last; m++ {
		b.add(kind, layer, m)
	}
}

// forward runs the layers but the last, whose forwards and backwards alternate.
func (b *orderBuilder) forward() {
	for l := 1; l < b.p.n; l++ {
		switch s := b.pattern.segment[l]; s {
		case 0:
			b.all(schedule.ForwardAll, l)
		case l:
			b.all(schedule.ForwardCheckpoint, l)
		default:
			b.all(schedule.ForwardDiscard, l)
		}
	}
}

// backward runs the segments, the last first.
func (b *orderBuilder) backward() {
	n := b.p.n
	for m := b.first; m <= b.last; m++ {
		b.add(schedule.ForwardAll, n, m)
		b.add(schedule.Backward, n, m)
	}
	for l := n - 1; l >= 1; {
		s := b.pattern.segment[l]
		for k := s; s > 0 && k <= l; k++ {
			if k == l { // its backward follows at once
				b.pairs(l)
				continue
			}
			b.all(schedule.ForwardAll, k)
		}
		if s == 0 {
			s = l
			b.all(schedule.Backward, l)
		}
		for l--; l >= s; l-- {
			b.all(schedule.Backward, l)
		}
	}
}

// pairs runs a layer's forwards again, each before its backward.
func (b *orderBuilder) pairs(l int) {
	for m := b.first; m <= b.last; m++ {
		b.add(schedule.ForwardAll, l, m)
		b.add(schedule.Backward, l, m)
	}
}

// follow replays the ops by the rules of activations; false: they break one.
func (b *orderBuilder) follow() bool {
	c := b.p.c
	rules := make([]*schedule.Follower, b.p.microbatches)
	copies := make([]reader, b.p.microbatches)
	for i := range rules {
		rules[i], copies[i] = schedule.Follow(c), newReader(c.Len())
	}
	used := c.InputBytes * int64(b.p.microbatches)
	for i, op := range b.ops {
		m := max(op.Microbatch, 1) - 1
		e, err := rules[m].Do(schedule.Op{Kind: op.Kind, Layer: op.Layer})
		if err != nil {
			return false
		}
		b.rest = append(b.rest, used)
		b.used = append(b.used, used+e.Takes)
		b.seconds = append(b.seconds, e.Seconds)
		b.total += e.Seconds
		used += e.Leaves
		b.leaves = copies[m].read(b, i, op, b.leaves)
	}
	b.rest = append(b.rest, used)
	for i := range rules {
		if rules[i].End() != nil || rules[i].Left() >= 0 {
			return false
		}
	}
	return true
}

// reader follows the activations of one microbatch.
type reader struct {
	latest []int  // by activation: the op that made or read it last; -1: none
	saved  []bool // by activation: it is ā_i
}

func newReader(n int) reader {
	r := reader{make([]int, n+1), make([]bool, n+1)}
	for i := range r.latest {
		r.latest[i] = -1
	}
	return r
}

// read notes what op i, of the order, reads and makes.
func (r *reader) read(b *orderBuilder, i int, op cycle.Op, stays []absence) []absence {
	l := op.Layer
	if stays = r.use(b, stays, l-1, i, op.Microbatch); op.Kind == schedule.Backward {
		stays = r.use(b, stays, l, i, op.Microbatch)
		r.latest[l] = -1
		if !r.saved[l-1] {
			r.latest[l-1] = -1
		}
		return stays
	}
	if op.Kind == schedule.ForwardDiscard {
		r.latest[l-1] = -1
	}
	r.latest[l], r.saved[l] = i, op.Kind == schedule.ForwardAll
	return stays
}

// use ends the absence of an activation at an op that reads it. One between neighbours does not count, nor the input before its first use.
func (r *reader) use(b *orderBuilder, stays []absence, activation, i, microbatch int) []absence {
	from := r.latest[activation]
	if from >= 0 && i > from+1 && activation < b.p.n {
		bytes := b.p.c.Activation(activation)
		if r.saved[activation] {
			bytes = b.p.c.Saved(activation)
		}
		if bytes > 0 {
			stays = append(stays, absence{activation, microbatch, bytes, from, i})
		}
	}
	r.latest[activation] = i
	return stays
}

// shortChain is the longest chain, loss included, whose patterns of recomputation are all tried.
const shortChain = 5

// patterns returns the ways to compute the layers of a group again: by level, and of short chains all segments.
func (p *problem) patterns(group int) []pattern {
	if p.n > shortChain {
		return slices.Concat(p.levels(group), p.spread(group), p.equalSegments(group))
	}
	all := []pattern{{group: group, segment: make([]int, p.n+1)}}
	for l := 1; l < p.n; l++ {
		var more []pattern
		for _, t := range all {
			more = append(more, t)
			first := []int{l}
			if s := t.segment[l-1]; s > 0 {
				first = append(first, s)
			}
			for _, s := range first {
				y := pattern{group: group, segment: append([]int(nil), t.segment...)}
				y.segment[l] = s
				more = append(more, y)
			}
		}
		all = more
	}
	return all
}

// spread returns patterns in which a part of the layers, evenly spread, is computed again: then activations that are offloaded leave at an
// even pace.
func (p *problem) spread(group int) (patterns []pattern) {
	const parts = 8
	for k := 1; k < parts; k++ {
		t := pattern{group: group, segment: make([]int, p.n+1)}
		for l := 1; l < p.n; l++ {
			if l*k/parts > (l-1)*k/parts {
				t.segment[l] = l
			}
		}
		patterns = append(patterns, t)
	}
	return patterns
}

// equalSegments returns patterns whose segments have 2, 4, ... layers.
func (p *problem) equalSegments(group int) (patterns []pattern) {
	for size := 2; size < p.n; size *= 2 {
		t := pattern{group: group, segment: make([]int, p.n+1)}
		for l := 1; l < p.n; l++ {
			t.segment[l] = l - (l-1)%size
		}
		patterns = append(patterns, t)
	}
	return patterns
}

// levels returns patterns of groups of microbatches with more and more layers that are computed again from their inputs. The layers that
// free the most bytes for each second of their forwards come first.
func (p *problem) levels(group int) (patterns []pattern) {
	ranked := p.byFreed()
	steps := min(len(ranked), 8)
	for k := 0; k <= steps; k++ {
		t := pattern{group: group, segment: make([]int, p.n+1)}
		for _, l := range ranked[:len(ranked)*k/max(steps, 1)] {
			t.segment[l] = l
		}
		patterns = append(patterns, t)
	}
	return patterns
}

// byFreed returns the layers but the last by the bytes that recomputation frees for each second.
func (p *problem) byFreed() (layers []int) {
	freed := func(l int) float64 {
		x := p.c.Layer(l)
		return float64(x.SavedBytes-x.OutputBytes) / max(x.ForwardS, 1e-12)
	}
	for l := 1; l < p.n; l++ {
		layers = append(layers, l)
	}
	slices.SortStableFunc(layers, func(a, b int) int {
		switch x, y := freed(a), freed(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return layers
}

// groups returns numbers of microbatches that pass through a layer together.
func (p *problem) groups() (groups []int) {
	for g := 1; g < p.microbatches; g *= 2 {
		groups = append(groups, g)
	}
	return append(groups, p.microbatches)
}
