package executor

import "plimsoll/internal/stats"

// Interval is when an op of a step ran, in seconds from the beginning of the sequence on the device.
type Interval struct{ Start, End float64 }

// Times are the measured times of a step along a sequence on its device, or of a part of one, in seconds.
type Times struct {
	Upload    float64    // of its batch
	Sequence  float64    // from the first op to the end of the last one
	Update    float64    // of the optimizer's update, of the last part
	Busy      float64    // how long ops and the update ran
	Intervals []Interval // when each op ran; empty when no op was timed
}

// Measured holds the times and the live bytes of one step along a plan, op by op. Times are seconds.
type Measured struct {
	Intervals []Interval // when each op ran; empty when no step was left to run
	Update    float64
	Whole     float64 // of the step, or of its last part, from its first op to the end of the update
	Step      float64 // of all parts
	Live      []int64 // bytes of the arena that were owned when each op started
}

// Recent keeps the latest steps of a run, so that all its figures are those of one step that was run.
type Recent struct {
	steps []Measured
	added int
}

// keptSteps is how many steps Recent keeps.
const keptSteps = 101

// Add keeps a step, by its parts in order, from 0.
func (r *Recent) Add(x *Times, part int) {
	if part == 0 {
		r.next().Step = 0
	}
	m := &r.steps[(r.added-1)%keptSteps]
	m.Intervals = append(m.Intervals[:0], x.Intervals...)
	m.Update, m.Whole = x.Update, x.Sequence+x.Update
	m.Step += m.Whole
}

// next returns where the next step is kept, in place of the oldest one.
func (r *Recent) next() *Measured {
	if len(r.steps) < keptSteps {
		r.steps = append(r.steps, Measured{})
	}
	r.added++
	return &r.steps[(r.added-1)%keptSteps]
}

// Middle returns the step whose time is in the middle of those kept, of two the faster one; with no field set when there
// are none.
func (r *Recent) Middle() Measured {
	if len(r.steps) == 0 {
		return Measured{}
	}
	return r.steps[stats.Middle(r.steps, func(m Measured) float64 { return m.Step })]
}
