package models

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"plimsoll/kernels"
)

// region is a block whose free parts a routine may keep temporaries in.
type region struct {
	block Block
	bytes int64
}

// layout gives the temporaries of a routine fixed places. As many as possible lie in the free parts of the regions, the others in an
// overflow block, Scratch or Kept, which is to be small. Two buffers may overlap when their lifetimes do not, or when they coincide
// exactly, one begins with the step that last reads the other, and the op allows it.
//
// Dynamic storage allocation is NP-hard; layers are small, and a few orders of first fit nearly always meet the
// lower bound. When they do not, seeded random orders follow.
type layout struct {
	temporaries []*buffer
	fixed       []*buffer // those that lie in a region
	regions     []region
	overflow    Block
	inPlace     [][][2]*buffer      // by step, each output with an input that it may lie on
	moments     int                 // the steps, and the moment after the last one
	homes       map[*buffer][]int64 // once computed: see home
}

// newLayout lays out all temporaries, those that overflow in Scratch.
func newLayout(r *routine, spare []region) *layout {
	return layoutOf(r, spare, Scratch, func(b *buffer) bool { return true })
}

// layoutOf lays out the temporaries that are chosen, as if there were no others.
func layoutOf(r *routine, spare []region, overflow Block, chosen func(*buffer) bool) *layout {
	l := &layout{overflow: overflow, inPlace: make([][][2]*buffer, len(r.steps)+1), moments: len(r.steps) + 1, homes: map[*buffer][]int64{}}
	for _, g := range spare {
		if g.bytes > 0 {
			l.regions = append(l.regions, g)
		}
	}
	for _, b := range r.lifetimes() {
		switch {
		case !b.fixed:
			if chosen(b) {
				l.temporaries = append(l.temporaries, b)
			}
		case slices.ContainsFunc(l.regions, func(g region) bool { return g.block == b.ref.Block && b.ref.Branch == 0 }):
			l.fixed = append(l.fixed, b)
		}
	}
	for t := range r.steps {
		l.permit(t, &r.steps[t])
	}
	return l
}

// permit records which outputs of step t may lie on which inputs. The op must allow it in every role in which
// the step reads the input, and nothing may read the input later.
func (l *layout) permit(t int, s *instruction) {
	for _, out := range s.args {
		if out.buf.first != t || !s.writes(out.operand) {
			continue
		}
		for _, in := range s.args {
			if in.buf.last == t && in.buf.first < t && s.mayLieOn(out, in.buf) {
				l.inPlace[t] = append(l.inPlace[t], [2]*buffer{out.buf, in.buf})
			}
		}
	}
}

// mayLieOn reports whether an output may lie on a buffer in every role in which the step reads it.
func (s *instruction) mayLieOn(out arg, in *buffer) bool {
	return !slices.ContainsFunc(s.args, func(a arg) bool {
		return a.buf == in && !s.call.Op.Alias(s.call.Pass, out.operand, a.operand)
	})
}

// writes reports whether the operand is an output of the call.
func (s *instruction) writes(o kernels.Operand) bool {
	if s.call.Pass == kernels.Forward {
		return o.Role == kernels.Y || o.Role == kernels.Save
	}
	return o.Role == kernels.DX || o.Role == kernels.DParam
}

// randomOrders bounds the search after the deliberate orders.
const randomOrders = 400

// place sets the places of the temporaries and returns the extent of the overflow block.
func (l *layout) place() int64 {
	best := &attempt{layout: l, extent: -1}
	bound := l.lowerBound()
	consider := func(order []*buffer, regions []region, eager bool) bool {
		if a := l.attempt(order, regions, eager); best.extent < 0 || a.extent < best.extent {
			best = a
		}
		return best.extent == bound
	}
	if !l.deliberate(consider) {
		l.random(consider)
	}
	for i, b := range best.buffers[len(l.fixed):] {
		b.ref = best.refs[len(l.fixed)+i]
	}
	return best.extent
}

type consider func(order []*buffer, regions []region, eager bool) (done bool)

// deliberate tries orders that tend to be good.
func (l *layout) deliberate(try consider) bool {
	size := func(b *buffer) int64 { return kernels.Align(b.bytes) }
	span := func(b *buffer) int { return b.last - b.first }
	for _, by := range []func(a, b *buffer) int{
		func(a, b *buffer) int { return cmp.Compare(size(b), size(a)) },
		func(a, b *buffer) int { return cmp.Compare(a.first, b.first) },
		func(a, b *buffer) int { return cmp.Compare(b.last, a.last) },
		func(a, b *buffer) int { return cmp.Compare(span(b), span(a)) },
		func(a, b *buffer) int { return cmp.Compare(size(b)*int64(1+span(b)), size(a)*int64(1+span(a))) },
	} {
		order := slices.Clone(l.temporaries)
		slices.SortStableFunc(order, by)
		for _, eager := range []bool{true, false} {
			if try(order, l.regions, eager) {
				return true
			}
		}
	}
	return false
}

// random tries seeded orders of buffers and regions.
func (l *layout) random(try consider) {
	r := rand.New(rand.NewPCG(1, 2))
	order, regions := slices.Clone(l.temporaries), slices.Clone(l.regions)
	for i := range randomOrders {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		r.Shuffle(len(regions), func(i, j int) { regions[i], regions[j] = regions[j], regions[i] })
		if try(order, regions, i%2 == 0) {
			return
		}
	}
}

// exactly is how many of the largest live buffers of a step the lower bound distributes: the others it leaves out.
const exactly = 10

// lowerBound returns the bytes of the overflow block that every layout needs. In each step, live buffers that share no place are
// distributed best over the free bytes of the regions, as if these were in one piece. The bound is the largest rest.
func (l *layout) lowerBound() int64 {
	var bound int64
	for t := range l.moments {
		var live []*buffer
		for _, b := range l.temporaries {
			if b.first <= t && t <= b.last && !l.shares(b, t) {
				live = append(live, b)
			}
		}
		slices.SortFunc(live, func(a, b *buffer) int { return cmp.Compare(b.bytes, a.bytes) })
		bound = max(bound, l.leftOver(live[:min(len(live), exactly)], l.room(t)))
	}
	return bound
}

// home returns for each region the most bytes in one piece that are free in all steps in which b does not lie on a buffer
// whose place is given. (Where it lies on another temporary, that one needs the place too.)
func (l *layout) home(b *buffer) []int64 {
	if home, have := l.homes[b]; have {
		return home
	}
	first, last := b.first, b.last
	if l.sharesFixed(b, first) {
		first++
	}
	if l.sharesFixed(b, last) {
		last--
	}
	l.homes[b] = l.pieces(first, last)
	return l.homes[b]
}

// pieces returns for each region the most bytes in one piece that are free in all of the steps.
func (l *layout) pieces(first, last int) []int64 {
	most := make([]int64, len(l.regions))
	for i, g := range l.regions {
		var taken []Ref
		for _, b := range l.fixed {
			if b.ref.Block == g.block && b.first <= last && first <= b.last {
				taken = append(taken, b.ref)
			}
		}
		slices.SortFunc(taken, func(a, b Ref) int { return cmp.Compare(a.Offset, b.Offset) })
		end := int64(0)
		for _, r := range taken {
			most[i] = max(most[i], r.Offset-end)
			end = max(end, r.Offset+kernels.Align(r.Bytes))
		}
		most[i] = max(most[i], g.bytes-end)
	}
	return most
}

// room returns the bytes of each region that are free in a step.
func (l *layout) room(t int) []int64 {
	rooms := make([]int64, len(l.regions))
	for i, g := range l.regions {
		rooms[i] = g.bytes
		for _, b := range l.fixed {
			if b.ref.Block == g.block && b.first <= t && t <= b.last {
				rooms[i] -= kernels.Align(b.bytes)
			}
		}
	}
	return rooms
}

// leftOver returns the fewest bytes that do not fit when buffers are put into rooms.
func (l *layout) leftOver(buffers []*buffer, rooms []int64) int64 {
	if len(buffers) == 0 {
		return 0
	}
	b, size := buffers[0], kernels.Align(buffers[0].bytes)
	least := size + l.leftOver(buffers[1:], rooms)
	for i, free := range l.home(b) {
		if size <= min(free, rooms[i]) && least > 0 {
			rooms[i] -= size
			least = min(least, l.leftOver(buffers[1:], rooms))
			rooms[i] += size
		}
	}
	return least
}

// shares reports whether b, a temporary, may lie in step t where another counted buffer lies. That is an output on an
// input, or an input on an output with a given place.
func (l *layout) shares(b *buffer, t int) bool {
	return l.meet(t, func(out, in *buffer) bool { return out == b || in == b && out.fixed })
}

// sharesFixed reports whether b, a temporary, may lie in step t on a buffer whose place is given.
func (l *layout) sharesFixed(b *buffer, t int) bool {
	return l.meet(t, func(out, in *buffer) bool { return out == b && in.fixed || in == b && out.fixed })
}

// meet reports whether step t has an output that may lie on an input, of those that are asked for.
func (l *layout) meet(t int, asked func(out, in *buffer) bool) bool {
	return slices.ContainsFunc(l.inPlace[t], func(pair [2]*buffer) bool {
		out, in := pair[0], pair[1]
		return in.bytes == out.bytes && asked(out, in)
	})
}

// attempt is one first fit.
type attempt struct {
	layout  *layout
	buffers []*buffer // the fixed ones, then the temporaries placed so far
	refs    []Ref
	extent  int64 // of the overflow block
}

// attempt places the temporaries in the given order at the first place that is free: region by region, then in the
// overflow block. When eager, the place of an input that an output may lie on is tried before all others.
func (l *layout) attempt(order []*buffer, regions []region, eager bool) *attempt {
	a := &attempt{layout: l}
	for _, b := range l.fixed {
		a.put(b, b.ref)
	}
	for _, b := range order {
		a.put(b, a.find(b, regions, eager))
	}
	return a
}

func (a *attempt) put(b *buffer, r Ref) {
	a.buffers, a.refs = append(a.buffers, b), append(a.refs, r)
	if r.Block == a.layout.overflow {
		a.extent = max(a.extent, r.Offset+kernels.Align(b.bytes))
	}
}

func (a *attempt) find(b *buffer, regions []region, eager bool) Ref {
	if eager {
		for i, p := range a.buffers {
			if r := a.refs[i]; a.layout.together(b, p) && a.free(b, r) {
				return r
			}
		}
	}
	for _, g := range regions {
		r := a.lowest(b, g.block)
		if r.Offset+kernels.Align(b.bytes) <= g.bytes {
			return r
		}
	}
	return a.lowest(b, a.layout.overflow)
}

// lowest returns the lowest free place for b in a block without end.
func (a *attempt) lowest(b *buffer, block Block) Ref {
	best := Ref{Block: block, Offset: -1, Bytes: b.bytes}
	consider := func(offset int64) {
		r := Ref{Block: block, Offset: offset, Bytes: b.bytes}
		if (best.Offset < 0 || offset < best.Offset) && a.free(b, r) {
			best = r
		}
	}
	consider(0)
	for i, p := range a.buffers {
		if r := a.refs[i]; r.Block == block {
			consider(r.Offset + kernels.Align(p.bytes))
			if a.layout.together(b, p) {
				consider(r.Offset)
			}
		}
	}
	return best
}

// free reports whether b may lie at r beside everything placed so far.
func (a *attempt) free(b *buffer, r Ref) bool {
	for i, p := range a.buffers {
		at := a.refs[i]
		switch {
		case at.Block != r.Block, at.Offset >= r.Offset+kernels.Align(b.bytes), r.Offset >= at.Offset+kernels.Align(p.bytes): // apart
		case p.last < b.first, b.last < p.first: // never at the same time
		case at.Offset == r.Offset && a.layout.together(b, p):
		default:
			return false
		}
	}
	return true
}

// together reports whether the two buffers may lie on exactly the same bytes although they meet in one step.
func (l *layout) together(b, c *buffer) bool {
	if b.first < c.first {
		b, c = c, b
	}
	return b.bytes == c.bytes && slices.Contains(l.inPlace[b.first], [2]*buffer{b, c})
}
