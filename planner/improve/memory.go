package improve

import (
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// residency is what the device holds of an activation.
type residency uint8

const (
	nothing residency = iota
	plain             // a_i
	saved             // ā_i; ā_0 = a_0 is plain
)

// tracker follows what the device holds through a sequence of compute ops that keeps the rules.
type tracker struct {
	c     *chain.Chain
	holds []residency
	grad  int
	used  int64
}

func newTracker(c *chain.Chain) *tracker {
	t := &tracker{c: c, holds: make([]residency, c.Len()+1), grad: c.Len()}
	t.set(0, plain)
	return t
}

func (t *tracker) bytes(i int, what residency) int64 {
	switch what {
	case plain:
		return t.c.Activation(i)
	case saved:
		return t.c.Saved(i)
	}
	return 0
}

func (t *tracker) set(i int, what residency) {
	t.used += t.bytes(i, what) - t.bytes(i, t.holds[i])
	t.holds[i] = what
}

// takes returns what an op takes beside what is stored.
func (t *tracker) takes(op schedule.Op) int64 {
	layer := t.c.Layer(op.Layer)
	switch op.Kind {
	case schedule.ForwardAll:
		return layer.SavedBytes + layer.ForwardOverheadBytes
	case schedule.Backward:
		return t.c.Gradient(op.Layer-1) + layer.BackwardOverheadBytes
	default:
		return layer.OutputBytes + layer.DiscardOverhead()
	}
}

// run carries out a compute op and returns the memory in use during it.
func (t *tracker) run(op schedule.Op) int64 {
	peak, l := t.used+t.takes(op), op.Layer
	switch op.Kind {
	case schedule.ForwardAll:
		t.set(l, saved)
	case schedule.ForwardCheckpoint:
		t.set(l, max(plain, t.holds[l]))
	case schedule.ForwardDiscard:
		t.set(l-1, nothing)
		t.set(l, max(plain, t.holds[l]))
	case schedule.Backward:
		t.backward(l)
	}
	return peak
}

func (t *tracker) backward(l int) {
	t.set(l, nothing)
	if t.holds[l-1] != saved {
		t.set(l-1, nothing)
	}
	t.used += t.c.Gradient(l-1) - t.c.Gradient(l)
	t.grad = l - 1
}

// Memory returns, for each compute op, the bytes in use while it runs if the activations of the gaps are away between
// their two ops and transfers take no time.
func Memory(c *chain.Chain, compute schedule.Sequence, gaps []Gap) []int64 {
	t, out := newTracker(c), make([]int64, len(compute))
	away := make([]residency, c.Len()+1)
	for i, op := range compute {
		for _, g := range gaps {
			if g.To == i {
				t.set(g.Layer-1, away[g.Layer-1])
			}
		}
		for _, g := range gaps {
			if g.From == i { // it leaves before the op has ended, but is there while the op runs
				away[g.Layer-1] = t.holds[g.Layer-1]
			}
		}
		out[i] = t.run(op)
		for _, g := range gaps {
			if g.From == i {
				t.set(g.Layer-1, nothing)
			}
		}
	}
	return out
}

// Bytes returns the size of what a gap moves.
func Bytes(c *chain.Chain, compute schedule.Sequence, gap Gap) int64 {
	t := newTracker(c)
	for _, op := range compute[:gap.From] {
		t.run(op)
	}
	return t.bytes(gap.Layer-1, t.holds[gap.Layer-1])
}
