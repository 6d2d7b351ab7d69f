package pipeline

import (
	"fmt"
	"plimsoll/planner/pipeline"
	"slices"
)

// reads returns the kind of the last task of a stage that reads δ of its output.
func (o *order) reads(s int) pipeline.Kind {
	if o.late[s] {
		return pipeline.W
	}
	return pipeline.B
}

// leaves returns the kind of the last task of a stage.
func (o *order) leaves(s int) pipeline.Kind {
	if o.split[s] {
		return pipeline.W
	}
	return pipeline.B
}

// leavingBy returns the portals by which skips leave a stage.
func (o *order) leavingBy(s int) (all []pipeline.Portal) {
	for _, p := range o.plan.Portals {
		if p.From == s {
			all = append(all, p)
		}
	}
	return all
}

// departs reports whether the output of a stage, skips and all, leaves a device for every minibatch.
func (o *order) departs(s, device int) bool {
	for r := range o.repeats {
		if !o.onDevice(s, r, device) {
			continue
		}
		stays := slices.ContainsFunc(o.leavingBy(s), func(p pipeline.Portal) bool { return o.onDevice(p.To, r, device) })
		if stays || !o.crosses(s, r) {
			return false
		}
	}
	return s+1 < len(o.on)
}

// lingers reports whether the second half of a backward reads the output of an earlier stage on the same device.
func (o *order) lingers(s, device int) bool {
	for r := range o.repeats {
		if o.onDevice(s, r, device) && s+1 < len(o.on) && o.split[s+1] && !o.crosses(s, r) {
			return true
		}
		for _, p := range o.plan.Portals {
			if p.From == s && o.split[p.To] && o.onDevice(s, r, device) && o.onDevice(p.To, r, device) {
				return true
			}
		}
	}
	return false
}

// onDevice reports whether a stage works on a minibatch on a device.
func (o *order) onDevice(stage, minibatch, device int) bool {
	return stage >= 0 && o.on[stage][o.residue(minibatch)] == device
}

// offloadsInput reports whether the input of a stage goes to the host.
func (o *order) offloadsInput(s int) bool { return o.work.Ops[s] != nil && o.work.Ops[s].OffloadsInput }

// rings reports whether a stage has a ring: it has ops of its own, and with them its device for itself.
func (o *order) rings(s int) bool {
	return len(o.plan.Stages[s].Ops) > 0 && !o.plan.IsFlush() && o.repeats == 1
}

// portalTask is a communication through a portal, for minibatches of a residue: from a stage to another, or back.
type portalTask struct {
	kind              pipeline.Kind
	from, to, residue int
}

// through returns the devices that send and receive through a portal.
func (o *order) through(g portalTask) (from, to int) {
	from, to = o.on[g.from][g.residue], o.on[g.to][g.residue]
	if g.kind == pipeline.CB {
		return to, from
	}
	return from, to
}

// brings names what a task takes from other devices through portals.
func (o *order) brings(v instance) (all []string) {
	r := o.residue(v.minibatch)
	for _, p := range o.plan.Portals {
		for _, g := range []portalTask{{pipeline.CF, p.From, p.To, r}, {pipeline.CB, p.From, p.To, r}} {
			forward, back := v.kind == pipeline.F && v.stage == p.To, v.kind == pipeline.B && v.stage == p.From
			if from, to := o.through(g); from != to && (g.kind == pipeline.CF && forward || g.kind == pipeline.CB && back) {
				all = append(all, fmt.Sprintf("%v%d-%d from device %d", g.kind, p.From, p.To, from))
			}
		}
	}
	return all
}
