package schedule

import (
	"fmt"

	"plimsoll/planner/chain"
)

// The rules of a chain, carried over to branches that meet (thesis, section 1.1.4, definition 3): a layer needs all
// activations that it reads, its backward leaves a gradient for each of them and consumes those that are plain. The branches
// go back in any order. The gradient of a branch's input goes as soon as it is there: training has no use for it (Multi-∅).
// Nothing is transferred.

// join is what is in memory between two ops, by activation.
type join struct {
	chain.Wiring
	c    *chain.Chain
	act  []residency
	grad []bool
}

// judgeJoin is judge for a chain with branches.
func (r *replay) judgeJoin(c *chain.Chain, seq Sequence) error {
	r.reset(c, len(seq))
	w := c.Wiring()
	j := &join{Wiring: w, c: c, act: make([]residency, w.Activations()), grad: make([]bool, w.Activations())}
	for k := range w.Inputs() {
		j.act[w.Input(k)] = plain
	}
	j.grad[c.Len()] = true // of the loss, empty
	missing := c.Len()
	for p, op := range seq {
		st := step{waits: [2]int32{none, none}, releases: [2]int32{none, none}, before: int32(p)}
		if reason := j.op(r, &st, op); reason != "" {
			return &RuleError{p, op, reason}
		}
		if r.steps = append(r.steps, st); op.Kind == Backward {
			missing--
		}
	}
	if r.compute = len(seq); missing > 0 {
		return &RuleError{Index: len(seq), Reason: fmt.Sprintf("%d of the %d backwards are missing", missing, c.Len())}
	}
	return nil
}

// op does an op; it returns the rule that the op breaks, or "".
func (j *join) op(r *replay, st *step, op Op) (reason string) {
	if op.Layer < 1 || op.Layer > j.c.Len() {
		return fmt.Sprintf("the chain has layers 1 to %d", j.c.Len())
	}
	if op.Kind.Transfer() || op.Kind > Prefetch {
		return "a model with branches has no transfers"
	}
	reads := j.Reads(op.Layer)
	for _, i := range reads {
		switch {
		case j.act[i] == nothing:
			return fmt.Sprintf("activation %d is not in device memory", i)
		case op.Kind == ForwardDiscard && j.act[i] != plain:
			return fmt.Sprintf("the plain a_%d is needed, the saved set ā_%d is stored", i, i)
		}
	}
	r.cost(st, op.Kind, op.Layer)
	if op.Kind == Backward {
		return j.backward(st, op.Layer, reads)
	}
	j.forward(st, op, reads)
	return ""
}

// forward: what is there already stays, but ā_l takes the place of a plain a_l.
func (j *join) forward(st *step, op Op, reads []int) {
	l, written := op.Layer, plain
	if op.Kind == ForwardAll {
		written = saved
	}
	if j.act[l] < written {
		j.free(st, l)
		j.act[l] = written
		st.leaves += j.bytes(l, written)
	}
	if op.Kind == ForwardDiscard {
		for _, i := range reads {
			j.free(st, i)
		}
	}
}

func (j *join) backward(st *step, l int, reads []int) (reason string) {
	switch {
	case !j.grad[l]:
		return fmt.Sprintf("δ_%d is not in memory", l)
	case j.act[l] != saved:
		return fmt.Sprintf("the saved set ā_%d is not in device memory", l)
	}
	st.takes = j.c.Layer(l).BackwardOverheadBytes
	st.leaves = -j.gradient(l)
	j.grad[l] = false
	j.free(st, l)
	for _, i := range reads {
		st.takes += j.gradient(i)
		if j.act[i] == plain {
			j.free(st, i)
		}
		if j.grad[i] = !j.IsInput(i); j.grad[i] {
			st.leaves += j.gradient(i)
		}
	}
	return ""
}

// free lets the op free an activation when it ends.
func (j *join) free(st *step, i int) {
	st.leaves -= j.bytes(i, j.act[i])
	j.act[i] = nothing
}

// bytes returns the size of what is stored of activation i.
func (j *join) bytes(i int, what residency) int64 {
	switch {
	case what == nothing:
		return 0
	case j.IsInput(i):
		return j.c.InputBytes
	case what == saved:
		return j.c.Saved(i)
	}
	return j.c.Activation(i)
}

// gradient returns the bytes of δ_i.
func (j *join) gradient(i int) int64 {
	if j.IsInput(i) {
		return j.c.InputBytes
	}
	return j.c.Gradient(i)
}
