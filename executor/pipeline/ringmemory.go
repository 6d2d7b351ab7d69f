package pipeline

import (
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// lifetimes finds the lifetimes of what minibatch 0 holds.
func (r *ringBuilder) lifetimes() {
	r.lives, r.hostLives = make([]lifetime, len(r.items)), make([]lifetime, len(r.ops.Swaps))
	for i := range r.steps {
		s := &r.steps[i]
		at := i - s.Shift*len(r.steps)
		end := max(at+1, r.until(s))
		if s.on == onCompute && s.Kind != pipeline.Update {
			grow(&r.inFlight, at, end)
		}
		for _, u := range r.uses(s) {
			a := &r.lives
			i := u.item
			if i == none {
				a, i = &r.hostLives, u.hostCopy
			}
			grow(&(*a)[i], at, end)
		}
	}
}

// until returns the position of the first step that starts after s ends; s holds its memory until then.
func (r *ringBuilder) until(s *step) int {
	end, n := s.until-s.Shift*r.period, len(r.steps)
	at := (order.FloorDiv(end, r.period) - 2) * n
	for {
		j := order.FloorDiv(at, n)
		if j*r.period+r.started[at-j*n] >= end {
			return at
		}
		at++
	}
}

// grow makes a lifetime include another.
func grow(a *lifetime, from, to int) {
	if a.to == a.from {
		*a = lifetime{from, to}
		return
	}
	a.from, a.to = min(a.from, from), max(a.to, to)
}

// pack finds how many minibatches have memory of their own, and where.
func (r *ringBuilder) pack() {
	n := len(r.steps)
	for _, a := range slices.Concat(r.lives, r.hostLives, []lifetime{r.inFlight}) {
		r.slots = max(r.slots, (a.to-a.from+n-1)/n)
	}
	r.places, r.live, r.bytes = r.around(r.lives, r.items)
	r.live += int64(r.slots) * ringScalars
	sizes := make([]int64, len(r.hostLives))
	for k := range sizes {
		sizes[k] = r.ops.Swaps[k].Bytes
	}
	r.hostCopies, _, r.locked = r.around(r.hostLives, sizes)
}

// around packs the lifetimes of all slots around the circle.
func (r *ringBuilder) around(arcs []lifetime, sizes []int64) (places [][]int64, live, extent int64) {
	n := len(r.steps)
	var items []pack.Item
	for slot := range r.slots {
		for i, a := range arcs {
			first := mod(a.from+slot*n, r.slots*n)
			items = append(items, pack.Item{Bytes: kernels.Align(sizes[i]), First: first, Last: first + a.to - a.from - 1})
		}
	}
	live, extent = pack.LiveCircle(items, r.slots*n), pack.Circle(items, r.slots*n)
	for slot := range r.slots {
		at := make([]int64, len(arcs))
		for i := range arcs {
			at[i] = items[slot*len(arcs)+i].Offset
		}
		places = append(places, at)
	}
	return places, live, extent
}

// depend finds what each step of each slot waits for.
func (r *ringBuilder) depend() {
	accessed := make([][][]memoryAccess, len(r.steps)) // by step and slot
	for i := range r.steps {
		s := &r.steps[i]
		s.waits, s.ends = make([][]stepRef, r.slots), make([]runtime.Event, r.slots)
		for slot := range r.slots {
			accessed[i] = append(accessed[i], r.accesses(s, slot))
		}
	}
	const rounds = 6 // when the first have passed, every round is like the one before
	h := newDependencies(r.streams())
	for j := range rounds * r.slots {
		for i := range r.steps {
			s := &r.steps[i]
			slot := mod(j+s.Shift, r.slots)
			s.waits[slot] = h.add(stepRef{i, slot}, s.on, accessed, false)
		}
	}
}

// streams returns how many streams the steps are on, up to the one with the largest number.
func (r *ring) streams() (n int) {
	for i := range r.steps {
		n = max(n, int(r.steps[i].on)+1)
	}
	return n
}

// accesses returns the bytes that a step of a slot uses, from the bases of the ring on.
func (r *ringBuilder) accesses(s *step, slot int) (all []memoryAccess) {
	for _, u := range r.uses(s) {
		span := runtime.Span{Space: runtime.Host}
		if u.item != none {
			span = runtime.Span{Offset: r.places[slot][u.item], Bytes: r.items[u.item]}
		} else {
			span.Offset, span.Bytes = r.hostCopies[slot][u.hostCopy], r.ops.Swaps[u.hostCopy].Bytes
		}
		all = append(all, memoryAccess{span, u.write})
	}
	return all
}
