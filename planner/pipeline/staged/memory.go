package staged

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// memory sets the peaks of devices whose stage has ops, and returns which are above what a device has.
func memory(p *pipeline.Platform, plan *pipeline.Plan, all []*costs, r *pipeline.Report) (over []pipeline.Violation) {
	for s, k := range all {
		if k == nil {
			continue
		}
		d := plan.Stages[s].Devices[0]
		held, at := k.peak(plan, s, r.Makespan)
		need := r.PerDeviceWeights[d] + r.PerDeviceBuffers[d] + held
		r.PerDevicePeak[d] = need
		if limit := p.Memory[d]; need > limit {
			over = append(over, pipeline.Violation{Rule: pipeline.RuleMemory, Task: at, Other: pipeline.None, Device: d, Needed: need, Limit: limit,
				Reason: fmt.Sprintf("device %d needs %s at task %d, %v (weights %s, buffers %s, microbatches of stage %d with its ops %s), it has %s",
					d, units.Precise(need), at, plan.Tasks[at], units.Bytes(r.PerDeviceWeights[d]), units.Bytes(r.PerDeviceBuffers[d]), s, units.Bytes(held), units.Precise(limit))})
		}
	}
	return over
}

// peak returns the most bytes that the microbatches of a stage hold at any instant, and the task that reaches it first.
func (k *costs) peak(plan *pipeline.Plan, s int, makespan float64) (int64, int) {
	most := int64(0)
	between, at := int64(0), pipeline.None
	for _, i := range k.turns(plan, s, makespan) {
		t := plan.Tasks[i]
		q := k.run(plan, t.Shift)
		inside := q.forward.peak
		if t.Kind == pipeline.B {
			between -= q.kept
			inside = q.backward.peak
		}
		if at == pipeline.None || between+inside > most {
			most, at = between+inside, i
		}
		if t.Kind == pipeline.F {
			between += q.kept
		}
	}
	return most, at
}

// simultaneous is the part of the makespan within which two tasks start at the same instant: what the checker forgives.
const simultaneous = 1e-9

// turns returns the forwards and backwards of a stage in the order in which its device runs them. Of those that start at the
// same instant the ones that take no time come first, then those of the microbatch that passed before.
func (k *costs) turns(plan *pipeline.Plan, s int, makespan float64) []int {
	var order []int
	for i, t := range plan.Tasks {
		if t.Stage == s && !t.Kind.Communication() {
			order = append(order, i)
		}
	}
	instant := func(i int) int {
		if timing := k.run(plan, plan.Tasks[i].Shift).timing(plan.Tasks[i].Kind); timing.Length > 0 {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := plan.Tasks[i], plan.Tasks[j]
		if math.Abs(a.Start-b.Start) > simultaneous*makespan {
			return cmp.Compare(a.Start, b.Start)
		}
		return cmp.Or(instant(i)-instant(j), a.Shift-b.Shift, int(a.Kind)-int(b.Kind))
	})
	return order
}
