package train

import (
	"cmp"
	"slices"

	"plimsoll/executor"
)

// Measured is what one step along a plan took, op by op. Times are seconds.
type Measured struct {
	Intervals []executor.Interval // when each op ran; empty when no step was left to run
	Update    float64
	Whole     float64 // of the step, or of its last part, from its first op to the end of the update
	Step      float64 // of all parts
	// UpdateKernels is the time of the update's kernels, StateWait what the step waited for offloaded state.
	UpdateKernels, StateWait float64
	Live                     []int64 // bytes of the arena that were owned when each op started
}

// Recent keeps the latest steps of a run, so that all its figures are those of one step that was run.
type Recent struct {
	steps []Measured
	added int
}

// kept is how many steps Recent keeps.
const kept = 101

// Add keeps a step, by its parts in order, from 0.
func (r *Recent) Add(x *executor.Result, part int) {
	if part == 0 {
		r.next().Step = 0
	}
	m := &r.steps[(r.added-1)%kept]
	m.Intervals = append(m.Intervals[:0], x.Intervals...)
	m.Update, m.Whole, m.UpdateKernels, m.StateWait = x.Update, x.Sequence+x.Update, x.UpdateKernels, x.StateWait
	m.Step += m.Whole
}

// next returns where the next step is kept, in place of the oldest one.
func (r *Recent) next() *Measured {
	if len(r.steps) < kept {
		r.steps = append(r.steps, Measured{})
	}
	r.added++
	return &r.steps[(r.added-1)%kept]
}

// Middle returns the step whose time is in the middle of those kept, of two the faster one; with no field set when there
// are none.
func (r *Recent) Middle() Measured {
	if len(r.steps) == 0 {
		return Measured{}
	}
	return r.steps[Middle(r.steps, func(m Measured) float64 { return m.Step })]
}

// Middle returns the position of the element in the middle by a value, of two that of the smaller one. There is at least one.
func Middle[T any](all []T, value func(T) float64) int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(value(all[i]), value(all[j])) })
	return order[(len(order)-1)/2]
}
