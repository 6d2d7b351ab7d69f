package pipeline

import (
	"plimsoll/models"
	"plimsoll/planner/pipeline"
)

// long returns how many minibatches show everything that a plan does: one step, or a run that fills the pipeline and goes on.
func (o *order) long() int {
	if o.plan.IsFlush() {
		return o.repeats
	}
	return 4*o.filling() + 8*o.repeats
}

// filling returns how many minibatches enter the pipeline before the first has left it, or a few more; 0 with a flush.
func (o *order) filling() int {
	if o.plan.IsFlush() {
		return 0
	}
	var all []instruction
	for _, instructions := range o.instructions {
		all = append(all, instructions...)
	}
	least, most := shifts(all)
	return most - least
}

// most returns the largest sum of changes in a run, instruction by instruction.
func (o *order) most(device int, change func(instance) int) (most int) {
	now := 0
	_ = o.instances(device, o.long(), func(v instance) error {
		now += change(v)
		most = max(most, now)
		return nil
	})
	return most
}

// sendSlots returns how many slots a device needs in a send buffer, for the messages of a stage's tasks of a kind, F or B. The driver fills
// some before it issues their communications. The plan has others in use at one time, from the start of a task until its communication
// has ended. The larger number is returned, so that no task waits for a slot.
func (o *order) sendSlots(kind pipeline.Kind, s, device int) int {
	carries, boundary, skips := pipeline.CF, s, o.leavingBy(s)
	if kind == pipeline.B {
		carries, boundary, skips = pipeline.CB, s-1, nil
	}
	var times []pipeline.Interval
	for r := range o.repeats {
		if o.onDevice(s, r, device) && o.crosses(boundary, r) {
			end := o.work.During(carries, boundary, 0, r).To
			for _, p := range skips {
				end = max(end, o.work.During(carries, p.From, p.To, r).To)
			}
			times = append(times, pipeline.Interval{From: o.work.During(kind, s, 0, r).From, To: end})
		}
	}
	left := map[int]int{} // messages, by minibatch
	return max(o.work.Most(times), o.most(device, func(v instance) int {
		switch {
		case v.kind == kind && v.stage == s && o.crosses(boundary, o.residue(v.minibatch)):
			left[v.minibatch] = 1 + len(skips)
			return 1
		case v.kind == carries && v.stage == boundary && (v.far == 0 || len(skips) > 0):
			if left[v.minibatch]--; left[v.minibatch] == 0 {
				return -1
			}
		}
		return 0
	}))
}

// localReturns returns how many δ of the output of a stage wait on a device for the backward of the stage, when they come from the
// next stage on the same device.
func (o *order) localReturns(s, device int) int {
	return o.most(device, func(v instance) int {
		switch {
		case v.kind == pipeline.B && v.stage == s+1 && o.onDevice(s, v.minibatch, device):
			return 1
		case v.kind == o.reads(s) && v.stage == s && s+1 < len(o.on) && o.onDevice(s+1, v.minibatch, device):
			return -1
		}
		return 0
	})
}

// waiting returns how many slots of a send buffer a device needs for δ of a portal's skips, as order.sendSlots does.
func (o *order) waiting(p models.Portal, device int) int {
	var times []pipeline.Interval
	for r := range o.repeats {
		if o.onDevice(p.To, r, device) && !o.onDevice(p.From, r, device) {
			from, to := o.work.During(pipeline.B, p.To, 0, r).From, o.work.During(pipeline.CB, p.From, p.To, r).To
			times = append(times, pipeline.Interval{From: from, To: to})
		}
	}
	return max(o.work.Most(times), o.most(device, func(v instance) int {
		switch {
		case v.kind == pipeline.B && v.stage == p.To && !o.onDevice(p.From, v.minibatch, device):
			return 1
		case v.kind == pipeline.CB && v.stage == p.From && v.far == p.To:
			return -1
		}
		return 0
	}))
}

// returning returns how many δ of a portal's skips wait on a device for the backward of the stage that has made them, when they
// come from a stage on the same device.
func (o *order) returning(p models.Portal, device int) int {
	return o.most(device, func(v instance) int {
		switch {
		case v.kind == pipeline.B && v.stage == p.To && o.onDevice(p.From, v.minibatch, device):
			return 1
		case v.kind == o.reads(p.From) && v.stage == p.From && o.onDevice(p.To, v.minibatch, device):
			return -1
		}
		return 0
	})
}

// unowned returns how many messages from one replica to another there are at one time, from their start until the other one has added
// them up, or two; and in the order of all instructions.
func (o *order) unowned(s, from, to int) int {
	var list []instruction
	for _, d := range []int{from, to} {
		for _, t := range o.instructions[d] {
			if t.stage == s && (d == from && t.kind == pipeline.Reducing && t.to == to || d == to && t.kind == pipeline.Owning) {
				list = append(list, t)
			}
		}
	}
	o.sort(list)
	most, now := 0, 0
	for _, t := range list {
		if t.kind == pipeline.Owning {
			now--
			continue
		}
		now++
		most = max(most, now)
	}
	times := o.work.UntilAdded(s, from, to)
	return max(most, min(len(times), 2), o.work.Most(times))
}
