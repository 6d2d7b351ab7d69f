package order

import (
	"fmt"
	"plimsoll/planner/pipeline"
	"slices"
)

// Reads returns the kind of the last task of a stage that reads δ of its output.
func (o *Order) Reads(s int) pipeline.Kind {
	if o.Late[s] {
		return pipeline.W
	}
	return pipeline.B
}

// Leaves returns the kind of the last task of a stage.
func (o *Order) Leaves(s int) pipeline.Kind {
	if o.Split[s] {
		return pipeline.W
	}
	return pipeline.B
}

// LeavingBy returns the portals by which skips leave a stage.
func (o *Order) LeavingBy(s int) (all []pipeline.Portal) {
	for _, p := range o.Plan.Portals {
		if p.From == s {
			all = append(all, p)
		}
	}
	return all
}

// Departs reports whether the output of a stage, skips and all, leaves a device for every minibatch.
func (o *Order) Departs(s, device int) bool {
	for r := range o.Repeats {
		if !o.OnDevice(s, r, device) {
			continue
		}
		stays := slices.ContainsFunc(o.LeavingBy(s), func(p pipeline.Portal) bool { return o.OnDevice(p.To, r, device) })
		if stays || !o.Crosses(s, r) {
			return false
		}
	}
	return s+1 < len(o.On)
}

// Lingers reports whether the second half of a backward reads the output of an earlier stage on the same device.
func (o *Order) Lingers(s, device int) bool {
	for r := range o.Repeats {
		if o.OnDevice(s, r, device) && s+1 < len(o.On) && o.Split[s+1] && !o.Crosses(s, r) {
			return true
		}
		for _, p := range o.Plan.Portals {
			if p.From == s && o.Split[p.To] && o.OnDevice(s, r, device) && o.OnDevice(p.To, r, device) {
				return true
			}
		}
	}
	return false
}

// OnDevice reports whether a stage works on a minibatch on a device.
func (o *Order) OnDevice(stage, minibatch, device int) bool {
	return stage >= 0 && o.On[stage][o.Residue(minibatch)] == device
}

// OffloadsInput reports whether the input of a stage goes to the host.
func (o *Order) OffloadsInput(s int) bool { return o.Work.Ops[s] != nil && o.Work.Ops[s].OffloadsInput }

// Rings reports whether a stage has a ring: it has ops of its own, and with them its device for itself.
func (o *Order) Rings(s int) bool {
	return len(o.Plan.Stages[s].Ops) > 0 && !o.Plan.IsFlush() && o.Repeats == 1
}

// PortalTask is a communication through a portal, for minibatches of a residue: from a stage to another, or back.
type PortalTask struct {
	Kind              pipeline.Kind
	From, To, Residue int
}

// Through returns the devices that send and receive through a portal.
func (o *Order) Through(g PortalTask) (from, to int) {
	from, to = o.On[g.From][g.Residue], o.On[g.To][g.Residue]
	if g.Kind == pipeline.CB {
		return to, from
	}
	return from, to
}

// Brings names what a task takes from other devices through portals.
func (o *Order) Brings(v Instance) (all []string) {
	r := o.Residue(v.Minibatch)
	for _, p := range o.Plan.Portals {
		for _, g := range []PortalTask{{pipeline.CF, p.From, p.To, r}, {pipeline.CB, p.From, p.To, r}} {
			forward, back := v.Kind == pipeline.F && v.Stage == p.To, v.Kind == pipeline.B && v.Stage == p.From
			if from, to := o.Through(g); from != to && (g.Kind == pipeline.CF && forward || g.Kind == pipeline.CB && back) {
				all = append(all, fmt.Sprintf("%v%d-%d from device %d", g.Kind, p.From, p.To, from))
			}
		}
	}
	return all
}
