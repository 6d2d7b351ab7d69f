package pipeline

import (
	"context"
	"maps"
	"slices"

	"plimsoll/planner/pipeline"
)

// newHalfDuplex returns those of the links that carry messages both ways, by the two ends in ascending order.
func newHalfDuplex(o *order, p *pipeline.Platform) map[[2]int]*halfDuplex {
	all := map[[2]int]*halfDuplex{}
	if p.Duplex {
		return all
	}
	for from, instructions := range o.instructions {
		for _, t := range instructions {
			if !t.message() || p.Beta(from, t.to) == pipeline.Free() {
				continue
			}
			ends := [2]int{min(from, t.to), max(from, t.to)}
			if all[ends] == nil {
				all[ends] = &halfDuplex{ends: ends, order: o, passed: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
			}
			all[ends].instructions = append(all[ends].instructions, t)
		}
	}
	for _, b := range all {
		o.sort(b.instructions)
	}
	return all
}

// halfDuplexes lists those of all links, in the order of their ends.
func (e *Executor) halfDuplexes() (all []*halfDuplex) {
	for _, ends := range slices.SortedFunc(maps.Keys(e.halfDuplex), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		all = append(all, e.halfDuplex[ends])
	}
	return all
}

// end returns the index of a device.
func (b *halfDuplex) end(device int) int { return slices.Index(b.ends[:], device) }

// reset frees the link before a run.
func (b *halfDuplex) reset() {
	for e := range b.ends {
		drain(b.passed[e])
	}
}

// Changes reports whether the link changes its direction between a message and the one before it (step -1) or behind it (step 1)
// in a segment. New weights take no turns with what comes before and after them: they leave when all gradients of the step have come, and
// the next step begins when they have. The other end may be in another segment. It has then sent all that this one takes in the segment before,
// and the link is as free as at the beginning of a run.
func (b *halfDuplex) Changes(in *bound, v instance, step int) bool {
	n, r := len(b.instructions), b.order.repeats
	least, most := shifts(b.instructions)
	at := slices.Index(b.instructions, v.instruction)
	for i := floorDiv(v.minibatch-v.shift, r)*n + at + step; ; i += step {
		j := floorDiv(i, n)
		if j*r+most < 0 || j*r+least >= in.end() {
			return false
		}
		t := b.instructions[i-j*n]
		if m := j*r + t.shift; m >= 0 && in.in(m) && !b.order.idle(t, m) {
			return t.to != v.to && t.renews() == v.renews()
		}
	}
}

// acquire waits for the link, if a message needs it.
func (b *halfDuplex) acquire(ctx context.Context, in *bound, v instance, q queue) error {
	if b == nil {
		return nil
	}
	changes := b.Changes(in, v, -1)
	other := b.end(v.to)
	if changes {
		if _, err := receive(ctx, b.passed[other]); err != nil {
			return err
		}
	}
	return b.note(q, changes, -1, command{verb: doTake, turn: b.passed[other]}, command{verb: doWait, on: q, event: b.event[other]})
}

// release lets the other end have the link behind a message, if the next one is the other's.
func (b *halfDuplex) release(in *bound, v instance, q queue) error {
	if b == nil {
		return nil
	}
	changes := b.Changes(in, v, 1)
	e := 1 - b.end(v.to)
	if changes {
		b.passed[e] <- struct{}{}
	}
	return b.note(q, changes, 1, command{verb: doRecord, on: q, event: b.event[e]}, command{verb: doGive, turn: b.passed[e]})
}

// note notes what a driver does when the link changes its direction. Which of a run's messages is the first and which the last is known
// when it is played; a step with a flush has always the same.
func (b *halfDuplex) note(q queue, changes bool, step int, list ...command) error {
	for _, c := range list {
		if !b.order.plan.IsFlush() {
			c.link, c.step = b, step
		} else if !changes {
			return nil
		}
		if err := q.of.recording.note(c); err != nil {
			return err
		}
	}
	return nil
}
