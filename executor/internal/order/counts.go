package order

import (
	"plimsoll/models"
	"plimsoll/planner/pipeline"
)

// Long returns how many minibatches show everything that a plan does: one step, or a run that fills the pipeline and goes on.
func (o *Order) Long() int {
	if o.Plan.IsFlush() {
		return o.Repeats
	}
	return 4*o.Filling() + 8*o.Repeats
}

// Filling returns how many minibatches enter the pipeline before the first has left it, or a few more; 0 with a flush.
func (o *Order) Filling() int {
	if o.Plan.IsFlush() {
		return 0
	}
	var all []Instruction
	for _, instructions := range o.Instructions {
		all = append(all, instructions...)
	}
	least, most := Shifts(all)
	return most - least
}

// most returns the largest sum of changes in a run, instruction by instruction.
func (o *Order) most(device int, change func(Instance) int) (most int) {
	now := 0
	_ = o.Instances(device, o.Long(), func(v Instance) error {
		now += change(v)
		most = max(most, now)
		return nil
	})
	return most
}

// SendSlots returns how many slots a device needs in a send buffer, for the messages of a stage's tasks of a kind, F or B. The driver fills
// some before it issues their communications. The plan has others in use at one time, from the start of a task until its communication
// has ended. The larger number is returned, so that no task waits for a slot.
func (o *Order) SendSlots(kind pipeline.Kind, s, device int) int {
	carries, boundary, skips := pipeline.CF, s, o.LeavingBy(s)
	if kind == pipeline.B {
		carries, boundary, skips = pipeline.CB, s-1, nil
	}
	var times []pipeline.Interval
	for r := range o.Repeats {
		if o.OnDevice(s, r, device) && o.Crosses(boundary, r) {
			end := o.Work.During(carries, boundary, 0, r).To
			for _, p := range skips {
				end = max(end, o.Work.During(carries, p.From, p.To, r).To)
			}
			times = append(times, pipeline.Interval{From: o.Work.During(kind, s, 0, r).From, To: end})
		}
	}
	left := map[int]int{} // messages, by minibatch
	return max(o.Work.Most(times), o.most(device, func(v Instance) int {
		switch {
		case v.Kind == kind && v.Stage == s && o.Crosses(boundary, o.Residue(v.Minibatch)):
			left[v.Minibatch] = 1 + len(skips)
			return 1
		case v.Kind == carries && v.Stage == boundary && (v.Far == 0 || len(skips) > 0):
			if left[v.Minibatch]--; left[v.Minibatch] == 0 {
				return -1
			}
		}
		return 0
	}))
}

// LocalReturns returns how many δ of a stage's output wait on a device for the stage's backward, where the next stage is on the same
// device.
func (o *Order) LocalReturns(s, device int) int {
	return o.most(device, func(v Instance) int {
		switch {
		case v.Kind == pipeline.B && v.Stage == s+1 && o.OnDevice(s, v.Minibatch, device):
			return 1
		case v.Kind == o.Reads(s) && v.Stage == s && s+1 < len(o.On) && o.OnDevice(s+1, v.Minibatch, device):
			return -1
		}
		return 0
	})
}

// Waiting returns how many slots of a send buffer a device needs for δ of a portal's skips, as order.sendSlots does.
func (o *Order) Waiting(p models.Portal, device int) int {
	var times []pipeline.Interval
	for r := range o.Repeats {
		if o.OnDevice(p.To, r, device) && !o.OnDevice(p.From, r, device) {
			from, to := o.Work.During(pipeline.B, p.To, 0, r).From, o.Work.During(pipeline.CB, p.From, p.To, r).To
			times = append(times, pipeline.Interval{From: from, To: to})
		}
	}
	return max(o.Work.Most(times), o.most(device, func(v Instance) int {
		switch {
		case v.Kind == pipeline.B && v.Stage == p.To && !o.OnDevice(p.From, v.Minibatch, device):
			return 1
		case v.Kind == pipeline.CB && v.Stage == p.From && v.Far == p.To:
			return -1
		}
		return 0
	}))
}

// Returning returns how many δ of a portal's skips wait on a device for the backward of the portal's first stage, where its second one is
// on that device, too.
func (o *Order) Returning(p models.Portal, device int) int {
	return o.most(device, func(v Instance) int {
		switch {
		case v.Kind == pipeline.B && v.Stage == p.To && o.OnDevice(p.From, v.Minibatch, device):
			return 1
		case v.Kind == o.Reads(p.From) && v.Stage == p.From && o.OnDevice(p.To, v.Minibatch, device):
			return -1
		}
		return 0
	})
}

// Unowned returns how many messages from one replica of a stage to another there are at one time in the order of all instructions, or two. A
// message is there from its start until the other replica has added it up. Where gradients pass, the messages of all stages count, and one may
// be enough.
func (o *Order) Unowned(s, from, to int) int {
	var list []Instruction
	passes := o.Sums[s].Passes()
	for _, d := range []int{from, to} {
		for _, t := range o.Instructions[d] {
			if (t.Stage == s || passes) && (d == from && t.Kind == pipeline.Reducing && t.To == to || d == to && t.Kind == pipeline.Owning && o.Sums[t.Stage].has(from)) {
				list = append(list, t)
			}
		}
	}
	Sort(list)
	most, now := 0, 0
	for _, t := range list {
		if t.Kind == pipeline.Owning {
			now--
			continue
		}
		now++
		most = max(most, now)
	}
	least := 2
	if passes {
		s, least = pipeline.None, 1
	}
	times := o.Work.UntilAdded(s, from, to)
	return max(most, min(len(times), least), o.Work.Most(times))
}
