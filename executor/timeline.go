package executor

import (
	"fmt"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Sim is the input of the simulation of a sequence with transfers. The layout of its memory follows that simulation,
// which says which offloads have ended when an op starts. Sequences without transfers need none.
type Sim struct {
	// Chain has the times that the plan was made for; its sizes do not count. nil: all times are 0.
	Chain *chain.Chain
	// Limits are the plan's; Memory 0, or above it, stands for what the arena leaves beside the static memory.
	Limits schedule.Limits
}

// Timeline is the order in which the ops of a sequence are issued. A moment is the start of an op: memory is taken at
// moments only, so the most that lives at one of them is the peak.
type Timeline struct {
	Order []int // positions in the sequence, by moment
	Start []int // by position: the op's moment
	End   []int // by position: the last moment before the op has ended
}

// inOrder is the timeline of a sequence without transfers: each op starts when the one before has ended.
func inOrder(ops int) *Timeline {
	order := make([]int, ops)
	for i := range order {
		order[i] = i
	}
	return &Timeline{order, order, order}
}

// Timeline returns the order of a sequence that may use memory bytes. Errors: those of schedule.Simulate.
func (w *Workload) Timeline(seq schedule.Sequence, sim Sim, memory int64) (*Timeline, error) {
	if !transfers(seq) {
		return inOrder(len(seq)), nil
	}
	c, err := w.timed(sim.Chain)
	if err != nil {
		return nil, err
	}
	if sim.Limits.Memory == 0 || sim.Limits.Memory > memory {
		sim.Limits.Memory = memory
	}
	r, err := schedule.Simulate(c, seq, sim.Limits)
	if err != nil {
		return nil, err
	}
	return newTimeline(len(seq), r.Order), nil
}

// newTimeline numbers the moments of a simulation (schedule.Result.Order).
func newTimeline(ops int, order []int) *Timeline {
	t := &Timeline{Start: make([]int, ops), End: make([]int, ops)}
	for _, p := range order {
		if p < 0 {
			t.End[^p] = len(t.Order) - 1
			continue
		}
		t.Start[p] = len(t.Order)
		t.Order = append(t.Order, p)
	}
	return t
}

// timed returns the model's chain with the times of c.
func (w *Workload) timed(c *chain.Chain) (*chain.Chain, error) {
	own := w.Chain()
	if c == nil {
		return own, nil
	}
	if c.Len() != own.Len() {
		return nil, fmt.Errorf("the plan was made for chain %s of %d layers, the model has %d", c.Name, c.Len(), own.Len())
	}
	for i := range own.Layers {
		from, to := &c.Layers[i], &own.Layers[i]
		to.ForwardS, to.BackwardS, to.DiscardForwardS = from.ForwardS, from.BackwardS, from.DiscardForwardS
	}
	own.CopyContention(c)
	return own, nil
}

// transfers reports whether a sequence uses the link.
func transfers(seq schedule.Sequence) bool {
	return slices.ContainsFunc(seq, func(op schedule.Op) bool { return op.Kind.Transfer() })
}
