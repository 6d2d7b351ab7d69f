package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/schedule"
)

// moving is what a stage compiler knows of what goes to the host and comes back in a step with a flush. Memory is taken and free as a
// simulation of the sequence says (section 4 of the semantics, package schedule).
type moving struct {
	leaving map[int]storedActivation // by layer: what was offloaded since the last compute op, which still may be read
	away    map[int]storedActivation // likewise, the host items of what is with the host
}

func newMoving() moving {
	return moving{leaving: map[int]storedActivation{}, away: map[int]storedActivation{}}
}

// move records O or P. An offload frees the device's memory when it, and the op that directly follows and reads it, have ended; a prefetch
// takes memory when it starts.
func (t *stageCompiler) move(o schedule.Op, out *op) error {
	out.moves = o.Kind
	l := o.Layer - 1
	if o.Kind == schedule.Prefetch {
		from, ok := t.away[l]
		if !ok {
			return fmt.Errorf("the output of layer %d is not with the host", l)
		}
		out.host = from.item
		copied := &t.host[from.item]
		copied.Last = max(copied.Last, t.ends())
		t.act[l] = storedActivation{item: t.open(copied.Bytes, &out.output), saved: from.saved}
		return nil
	}
	a, ok := t.act[l]
	if !ok {
		return fmt.Errorf("the output of layer %d is not stored", l)
	}
	bytes := t.entry
	if a.item == none {
		out.input.in = inStageInput
	} else {
		bytes = t.items[a.item].Bytes
		t.refs = append(t.refs, ref{&out.input, a.item})
		t.close(a.item)
	}
	out.host = len(t.host)
	t.host = append(t.host, pack.Item{Bytes: bytes, First: t.starts(), Last: t.ends()})
	t.leaving[l], t.away[l] = a, storedActivation{item: out.host, saved: a.saved}
	delete(t.act, l)
	return nil
}

// inTime returns the ops in the order in which they start, and finds where the backward begins in it.
func (t *stageCompiler) inTime(ops []op) []op {
	all, last := make([]op, len(ops)), none
	t.before = make([]int, len(ops))
	for i := range ops {
		all[ops[i].at] = ops[i]
		t.before[ops[i].at] = last
		if ops[i].program != nil {
			last = ops[i].at
		}
	}
	t.cut = t.time.Start[t.turn-1] + 1
	return all
}

// swap is an activation of a stage that goes to the host and comes back.
type swap struct {
	layer     int   // of the ops O and P
	out, back int   // where these stand in the sequence
	from, to  int   // items: what goes, none for the input of the stage, and what comes back
	bytes     int64 // of either
}

// transfer records O or P. What comes back is an item of its own.
func (t *stageCompiler) transfer(o schedule.Op, out *op) error {
	if t.time != nil {
		return t.move(o, out)
	}
	a, ok := t.act[o.Layer-1]
	if !ok {
		return fmt.Errorf("the output of layer %d is not stored", o.Layer-1)
	}
	if o.Kind == schedule.Offload {
		m := swap{layer: o.Layer, out: t.now, from: a.item, bytes: t.entry}
		if a.item != none {
			m.bytes = t.items[a.item].Bytes
		}
		t.swaps = append(t.swaps, m)
		return nil
	}
	i := slices.IndexFunc(t.swaps, func(m swap) bool { return m.layer == o.Layer })
	if i < 0 {
		return fmt.Errorf("the output of layer %d is not with the host", o.Layer-1)
	}
	m := &t.swaps[i]
	m.back, m.to = t.now, len(t.items)
	t.items = append(t.items, pack.Item{Bytes: kernels.Align(m.bytes), First: t.now, Last: len(t.seq) - 1})
	t.act[o.Layer-1] = storedActivation{item: m.to, saved: a.saved}
	return nil
}

// issued returns the ops that a task issues: of a ring those that are no transfers.
func (t *stageCompiler) issued(ops []op) []op {
	return slices.DeleteFunc(ops, func(o op) bool { return o.program == nil && t.time == nil })
}
