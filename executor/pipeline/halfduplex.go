package pipeline

import (
	"context"
	"maps"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
)

// newHalfDuplex returns the half-duplex links that carry messages both ways, by the two ends in ascending order.
func newHalfDuplex(o *order.Order, p *pipeline.Platform) map[[2]int]*halfDuplex {
	all := map[[2]int]*halfDuplex{}
	if p.Duplex {
		return all
	}
	for from, instructions := range o.Instructions {
		for _, t := range instructions {
			if !t.Message() || p.Beta(from, t.To) == pipeline.Free() {
				continue
			}
			ends := [2]int{min(from, t.To), max(from, t.To)}
			if all[ends] == nil {
				all[ends] = &halfDuplex{ends: ends, order: o, passed: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
			}
			all[ends].instructions = append(all[ends].instructions, t)
		}
	}
	for _, b := range all {
		order.Sort(b.instructions)
	}
	return all
}

// halfDuplexes lists those of all links, in the order of their ends.
func (comp *compilation) halfDuplexes() (all []*halfDuplex) {
	for _, ends := range slices.SortedFunc(maps.Keys(comp.halfDuplex), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		all = append(all, comp.halfDuplex[ends])
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
func (b *halfDuplex) Changes(in *order.Bound, v order.Instance, step int) bool {
	n, r := len(b.instructions), b.order.Repeats
	least, most := order.Shifts(b.instructions)
	at := slices.Index(b.instructions, v.Instruction)
	for i := order.FloorDiv(v.Minibatch-v.Shift, r)*n + at + step; ; i += step {
		j := order.FloorDiv(i, n)
		if j*r+most < 0 || j*r+least >= in.End() {
			return false
		}
		t := b.instructions[i-j*n]
		if m := j*r + t.Shift; m >= 0 && in.In(m) && !b.order.Idle(t, m) {
			return t.To != v.To && t.Renews == v.Renews
		}
	}
}

// acquire waits for the link, if a message needs it.
func (b *halfDuplex) acquire(ctx context.Context, in *order.Bound, v order.Instance, q table.Queue) error {
	if b == nil {
		return nil
	}
	changes := b.Changes(in, v, -1)
	other := b.end(v.To)
	if changes {
		if _, err := receive(ctx, b.passed[other]); err != nil {
			return err
		}
	}
	b.note(q, changes, -1, table.Command{Verb: table.DoTake, Turn: b.passed[other]}, table.Command{Verb: table.DoWait, On: q, Event: b.event[other]})
	return nil
}

// release lets the other end have the link behind a message, if the next one is the other's.
func (b *halfDuplex) release(in *order.Bound, v order.Instance, q table.Queue) {
	if b == nil {
		return
	}
	changes := b.Changes(in, v, 1)
	e := 1 - b.end(v.To)
	if changes {
		b.passed[e] <- struct{}{}
	}
	b.note(q, changes, 1, table.Command{Verb: table.DoRecord, On: q, Event: b.event[e]}, table.Command{Verb: table.DoGive, Turn: b.passed[e]})
}

// note notes what a driver does when the link changes its direction. Which of a run's messages is the first and which the last is known
// when it is played; a step with a flush has always the same.
func (b *halfDuplex) note(q table.Queue, changes bool, step int, list ...table.Command) {
	for _, c := range list {
		if !b.order.Plan.IsFlush() {
			c.Link, c.Step = b, step
		} else if !changes {
			return
		}
		q.Of.Recording.Note(c)
	}
}
