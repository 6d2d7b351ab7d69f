package pipeline

import (
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Moments of a cyclic plan are the positions of its ops, in a step that repeats without end: a position behind the last one is that of the
// next step.

// at returns where the item is at a position. It must be there.
func (r *residences) at(position int) runtime.Span {
	if x := r.covering(position); x != nil {
		return x.span
	}
	panic("BUG: a checked plan uses what is not there")
}

// covering returns the residence at a position; nil: there is none.
func (r *residences) covering(position int) *residence {
	for _, x := range r.list {
		if mod(position-x.first, r.positions) <= x.last-x.first {
			return x
		}
	}
	return nil
}

// stays reports whether the item is there when a step ends and the next one begins.
func (r *residences) stays() bool {
	x := r.covering(r.positions - 1)
	return x != nil && x.last >= r.positions
}

// fetched returns the residences of what comes to the device and is dropped there; throughout: it does neither.
func fetched(positions int, fetches, drops []int) *residences {
	r := &residences{positions: positions}
	for _, p := range fetches {
		nearest := positions
		for _, q := range drops {
			nearest = min(nearest, mod(q-p, positions))
		}
		r.list = append(r.list, &residence{first: p, last: p + nearest - 1})
	}
	if len(fetches) == 0 {
		r.list = []*residence{{last: 2*positions - 1}}
	}
	return r
}

// throughout reports whether the item never leaves its place.
func (r *residences) throughout() bool {
	return len(r.list) == 1 && r.list[0].last >= r.list[0].first+r.positions
}

// begun returns the residences of what begins with some ops, where it is not there, and ends with others.
func begun(positions int, begins, ends []int) *residences {
	r := &residences{positions: positions}
	if len(ends) == 0 {
		return r
	}
	var open *residence
	for p := ends[0] + 1; p <= ends[0]+positions; p++ {
		at := mod(p, positions)
		if open == nil && slices.Contains(begins, at) {
			open = &residence{first: at}
		}
		if open != nil && slices.Contains(ends, at) {
			open.last = open.first + mod(at-open.first, positions)
			r.list, open = append(r.list, open), nil
		}
	}
	return r
}

// add adds an item from one position to another, and where its span goes.
func (c *circle) add(bytes int64, first, last int, until untils, span *runtime.Span) {
	*span = runtime.Span{Bytes: bytes}
	if bytes > 0 {
		c.items, c.spans = append(c.items, pack.Item{Bytes: kernels.Align(bytes), First: first, Last: last}), append(c.spans, span)
		c.until = append(c.until, until)
	}
}

// shift tells the items where they lie in memory whose part for them begins at an offset.
func (c *circle) shift(space runtime.Space, base int64) {
	for i, s := range c.spans {
		s.Space, s.Offset = space, base+c.items[i].Offset
	}
}

// positionsOf returns the positions of the ops of a layer that are of some kinds.
func positionsOf(ops []cyclicOp, layer int, kinds ...schedule.Kind) (all []int) {
	for i := range ops {
		if ops[i].Layer == layer && slices.Contains(kinds, ops[i].Kind) {
			all = append(all, i)
		}
	}
	return all
}
