package stageops

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/schedule"
)

// moving is a stage compiler's state of the items that go to the host and come back in a step with a flush. Memory is taken and free
// as a simulation of the sequence says (section 4 of the semantics, package schedule).
type moving struct {
	leaving map[int]storedActivation // by layer: what was offloaded since the last compute op, which still may be read
	away    map[int]storedActivation // likewise, the host items of what is with the host
}

func newMoving() moving {
	return moving{leaving: map[int]storedActivation{}, away: map[int]storedActivation{}}
}

// move records O or P. An offload frees the device's memory when it, and the op that directly follows and reads it, have ended; a prefetch
// takes memory when it starts.
func (t *stageCompiler) move(o schedule.Op, out *Op) error {
	out.Moves = o.Kind
	l := o.Layer - 1
	if o.Kind == schedule.Prefetch {
		from, ok := t.away[l]
		if !ok {
			return fmt.Errorf("the output of layer %d is not with the host", l)
		}
		out.Host = from.item
		copied := &t.Host[from.item]
		copied.Last = max(copied.Last, t.ends())
		t.act[l] = storedActivation{item: t.open(copied.Bytes, &out.Output), saved: from.saved}
		return nil
	}
	a, ok := t.act[l]
	if !ok {
		return fmt.Errorf("the output of layer %d is not stored", l)
	}
	bytes := t.entry
	if a.item == none {
		out.Input.In = InStageInput
	} else {
		bytes = t.Items[a.item].Bytes
		t.refs = append(t.refs, ref{&out.Input, a.item})
		t.close(a.item)
	}
	out.Host = len(t.Host)
	t.Host = append(t.Host, pack.Item{Bytes: bytes, First: t.starts(), Last: t.ends()})
	t.leaving[l], t.away[l] = a, storedActivation{item: out.Host, saved: a.saved}
	delete(t.act, l)
	return nil
}

// inTime returns the ops in the order in which they start, and finds where the backward begins in it.
func (t *stageCompiler) inTime(ops []Op) []Op {
	all, last := make([]Op, len(ops)), none
	t.Before = make([]int, len(ops))
	for i := range ops {
		all[ops[i].At] = ops[i]
		t.Before[ops[i].At] = last
		if ops[i].Program != nil {
			last = ops[i].At
		}
	}
	t.Cut = t.Time.Start[t.turn-1] + 1
	return all
}

// Swap is an activation of a stage that goes to the host and comes back.
type Swap struct {
	Layer     int   // of the ops O and P
	Out, Back int   // where these stand in the sequence
	From, To  int   // items: what goes, none for the input of the stage, and what comes back
	Bytes     int64 // of either
}

// transfer records O or P. A fetched copy is an item of its own.
func (t *stageCompiler) transfer(o schedule.Op, out *Op) error {
	if t.Time != nil {
		return t.move(o, out)
	}
	a, ok := t.act[o.Layer-1]
	if !ok {
		return fmt.Errorf("the output of layer %d is not stored", o.Layer-1)
	}
	if o.Kind == schedule.Offload {
		m := Swap{Layer: o.Layer, Out: t.now, From: a.item, Bytes: t.entry}
		if a.item != none {
			m.Bytes = t.Items[a.item].Bytes
		}
		t.Swaps = append(t.Swaps, m)
		return nil
	}
	i := slices.IndexFunc(t.Swaps, func(m Swap) bool { return m.Layer == o.Layer })
	if i < 0 {
		return fmt.Errorf("the output of layer %d is not with the host", o.Layer-1)
	}
	m := &t.Swaps[i]
	m.Back, m.To = t.now, len(t.Items)
	t.Items = append(t.Items, pack.Item{Bytes: kernels.Align(m.Bytes), First: t.now, Last: len(t.seq) - 1})
	t.act[o.Layer-1] = storedActivation{item: m.To, saved: a.saved}
	return nil
}

// issued returns the ops that a task issues: of a ring those that are no transfers.
func (t *stageCompiler) issued(ops []Op) []Op {
	return slices.DeleteFunc(ops, func(o Op) bool { return o.Program == nil && t.Time == nil })
}
