package pipeline

import (
	"errors"
	"plimsoll/planner/chain"
	"slices"
)

// ErrNoRoom says that the messages of portals do not fit between the others of a plan, even if its period were twice as long.
var ErrNoRoom = errors.New("the links have no time left for portals")

// WithPortals returns a plan with portals. All other tasks stay where they are. A message through a portal gets a time at which its link is
// free. Skips take the latest such time, because their stage keeps them anyway; their gradients take the latest or the first. Where a plan
// with a flush has no such times, messages are sent when they are ready, and all tasks start as soon as that order allows. A period that
// has none is stretched, with everything in it, until it has. Messages between replicas are placed anew, around the others. The plan has no
// portals yet, and may have been made for the Straight chain. The returned plan has passed Check, and has its peaks and makespan. Errors:
// ErrNoRoom; those of Check.
func WithPortals(c *chain.Chain, p *Platform, plan *Plan, portals []Portal, back Return) (*Plan, error) {
	synchronized, zero := plan.Synchronization != nil, plan.Zero
	plan = plan.bare()
	plan.Zero = ZeroNothing
	out, err := withPortals(c, p, plan, portals, back)
	for longer := stretch; errors.Is(err, ErrNoRoom) && longer <= mostStretch; longer *= stretch {
		out, err = withPortals(c, p, plan.stretched(longer), portals, back)
	}
	if err == nil && synchronized {
		out.Zero = zero
		out, err = Synchronize(c, p, out)
	}
	if err != nil {
		return nil, err
	}
	out.PerDevicePeak, out.Predicted.Makespan, out.Predicted.Period = nil, 0, 0
	report, err := Check(c, p, out)
	if report != nil {
		report.predict(out)
	}
	return out, err
}

const (
	stretch     = 1.01 // from one period that is tried to the next
	mostStretch = 2
)

func withPortals(c *chain.Chain, p *Platform, plan *Plan, portals []Portal, back Return) (*Plan, error) {
	l, err := arrange(Straight(c, plan.Stages, portals), p, plan)
	if err != nil {
		return nil, err
	}
	r := newRouter(l)
	all := r.messages(portals)
	starts, fits := r.place(all, back)
	out := *plan
	out.Portals, out.PerDevicePeak = portals, nil
	out.Tasks, out.Timings = slices.Clone(plan.Tasks), slices.Clone(plan.Timings)
	for i := range out.Tasks {
		if t := &out.Tasks[i]; t.Kind.Communication() {
			t.Duration = nil // it may be another one now
		}
	}
	for i, m := range all {
		start, shift := m.ready, m.residue
		if fits {
			start, shift = r.within(starts[i], m.residue)
		}
		out.Tasks = append(out.Tasks, Task{Kind: m.kind, Stage: m.from, To: m.to, Device: m.source, Start: start, Shift: shift})
		if out.Timings != nil {
			out.Timings = append(out.Timings, nil)
		}
	}
	switch {
	case fits:
		return &out, nil
	case !plan.IsFlush():
		return nil, ErrNoRoom
	}
	return Timed(c, p, &out)
}
