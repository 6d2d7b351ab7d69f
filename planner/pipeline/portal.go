package pipeline

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
)

// Portal is the way of skips from the stage that makes them straight to the one that reads them, past the stages between
// (Kim et al. 2020, torchgpipe, section 3.3), and of their gradients back. Without it they travel in the activations of all
// boundaries between.
type Portal struct {
	From, To int   // stages; at least one lies between
	Bytes    int64 // of the skips, and of their gradients
}

func (p Portal) list() fields.List {
	return fields.List{{Name: "from_stage", Value: p.From}, {Name: "to_stage", Value: p.To}, {Name: "bytes", Value: p.Bytes}}
}

func takePortal(o *fields.Object) (p Portal, err error) {
	o.Require("from_stage", "to_stage", "bytes")
	p.From, p.To, p.Bytes = int(o.Size("from_stage", 0)), int(o.Size("to_stage", 0)), o.Size("bytes", 0)
	return p, o.Err()
}

// gate is what there is one communication of: from one stage to another, or back.
type gate struct {
	kind     Kind
	from, to int
	residue  int
}

// put books a job, unless there is one like it, which it returns.
func (l *layout) put(j *job) (first *job) {
	if j.far > 0 {
		at := gate{j.kind, j.stage, j.far, j.residue}
		if first = l.gates[at]; first == nil {
			l.gates[at] = j
		}
		return first
	}
	at := place{j.kind, j.stage, j.residue}
	if first = l.at[at]; first == nil {
		l.at[at] = j
	}
	return first
}

// hasPortal reports whether a task is a communication of one of the plan's portals.
func (l *layout) hasPortal(t *Task) bool {
	return t.Kind.Communication() && slices.ContainsFunc(l.plan.Portals, func(p Portal) bool { return p.From == t.Stage && p.To == t.To })
}

// portals checks the portals: each passes a stage, there is one for two stages, and what passes a boundary is part of its activation.
func (l *layout) portals() {
	n := len(l.plan.Stages)
	for i, p := range l.plan.Portals {
		switch {
		case p.From < 0 || p.To >= n || p.To < p.From+2:
			l.broken.stage("portal %d goes from stage %d to stage %d of %d: it must pass a stage", i, p.From, p.To, n)
			return
		case p.Bytes < 1:
			l.broken.stage("portal %d carries %d bytes", i, p.Bytes)
		case slices.ContainsFunc(l.plan.Portals[:i], func(q Portal) bool { return q.From == p.From && q.To == p.To }):
			l.broken.stage("portal %d: a second one from stage %d to stage %d", i, p.From, p.To)
		}
	}
	for s := range n - 1 {
		last := l.plan.Stages[s].Last
		for _, bytes := range []int64{l.chain.Activation(last), l.chain.Gradient(last)} {
			if passing := l.passing(s); passing > bytes {
				l.broken.stage("portals let %d bytes pass the boundary behind stage %d, whose message has %d", passing, s, bytes)
				return
			}
		}
	}
}

// passing returns the bytes that portals take past the boundary behind a stage.
func (l *layout) passing(s int) int64 { return passing(l.plan.Portals, s) }

func passing(portals []Portal, s int) (bytes int64) {
	for _, p := range portals {
		if p.From <= s && s < p.To {
			bytes += p.Bytes
		}
	}
	return bytes
}

// joined returns the pairs of stages between which there are messages.
func (l *layout) joined() (all [][2]int) {
	for s := range len(l.plan.Stages) - 1 {
		all = append(all, [2]int{s, s + 1})
	}
	for _, p := range l.plan.Portals {
		all = append(all, [2]int{p.From, p.To})
	}
	return all
}

// held returns what a live minibatch holds in a stage: without what passes it by a portal, which each of its activations
// would have.
func (l *layout) held(costs *Costs, s int) int64 {
	st := l.plan.Stages[s]
	bytes, activations := costs.Held(st.First, st.Last, l.plan.Accounting), int64(st.Len())
	if l.plan.Accounting == Saved {
		activations++
	}
	for _, p := range l.plan.Portals {
		if p.From < s && s < p.To {
			bytes -= activations * p.Bytes
		}
	}
	return bytes
}

// inside returns the chain as the ops of a stage have it, and the bytes of a minibatch's skips that lie beside them from its forward to
// its backward. Activations of a stage that a portal passes do not have what passes; the input of one that a portal ends at comes
// without it, so that it does not go to the host with the input.
func (l *layout) inside(s int) (own *chain.Chain, beside int64) {
	passed, brought := int64(0), int64(0)
	for _, p := range l.plan.Portals {
		switch {
		case p.From < s && s < p.To:
			passed += p.Bytes
		case p.To == s:
			brought += p.Bytes
		}
	}
	if passed+brought == 0 {
		return l.chain, 0
	}
	own, st := new(*l.chain), l.plan.Stages[s]
	own.Layers = slices.Clone(own.Layers)
	without(own, st.First-1, passed+brought)
	for i := st.First; i <= st.Last; i++ {
		without(own, i, passed)
	}
	return own, brought
}

// without takes bytes off an activation.
func without(c *chain.Chain, i int, bytes int64) {
	layer := c.Layer(i)
	for _, x := range []*int64{&layer.OutputBytes, &layer.GradientBytes, &layer.SavedBytes} {
		*x = max(0, *x-bytes)
	}
}

// Straight returns the chain as a strategy sees it that plans for stages with portals: messages between the stages without
// what passes by portals. It is good for these stages alone.
func Straight(c *chain.Chain, stages []Stage, portals []Portal) *chain.Chain {
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for s := range len(stages) - 1 {
		l := out.Layer(stages[s].Last)
		l.OutputBytes -= passing(portals, s)
		l.GradientBytes -= passing(portals, s)
	}
	return &out
}

// ErrNoRoom says that the messages of portals do not fit between the others of a plan, even if its period were twice as long.
var ErrNoRoom = errors.New("the links have no time left for portals")

// Return says when gradients go back through portals.
type Return uint8

const (
	// Late: when they are needed. They wait on the device that has made them.
	Late Return = iota
	// Soon: when they are made. They wait where they are needed.
	Soon
)

// WithPortals returns a plan with portals. All other tasks stay where they are; a message through a portal gets a time at
// which its link is free: skips, which their stage keeps anyway, the latest, their gradients the latest or the first. In a plan
// with a flush that has no such times, all tasks start as soon as an order allows in which each message is sent when it is
// ready; a period that has none is stretched, with everything in it, until it has. Messages between replicas are placed anew, around the
// others. The plan has no portals yet, and may have been made for the Straight chain. What is returned has been judged, and says its peaks and makespan. Errors: ErrNoRoom; those of
// Check.
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
	out.PerDevicePeak, out.Predicted.Makespan = nil, 0
	report, err := Check(c, p, out)
	if report != nil {
		out.PerDevicePeak, out.Predicted.Makespan = report.PerDevicePeak, report.Makespan
	}
	return out, err
}

const (
	stretch     = 1.01 // from one period that is tried to the next
	mostStretch = 2
)

// stretched returns a periodic plan with all starts and the period so many times as long. Whatever ended before something else
// began still does.
func (p *Plan) stretched(longer float64) *Plan {
	out := *p
	out.Period *= longer
	out.Tasks, out.Synchronization = slices.Clone(p.Tasks), slices.Clone(p.Synchronization)
	for i := range len(out.Tasks) + len(out.Synchronization) {
		start := out.start(i)
		*start = min(*start*longer, math.Nextafter(out.Period, 0)) // rounding may not move it into the next period
	}
	return &out
}

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

// window is a time of a link, seconds. In a periodic plan it repeats with the period.
type window struct{ from, length float64 }

// router finds times for messages.
type router struct {
	*layout
	every float64 // the period; 0 of a flush plan
	eps   float64 // what rounding may change
	busy  map[resource][]window
}

func newRouter(l *layout) *router {
	r := &router{layout: l, eps: 1e-11 * l.seconds(l.span()), busy: map[resource][]window{}}
	if l.period != nil {
		r.every = l.plan.Period
	}
	for _, j := range l.jobs {
		if j.onLink() {
			r.take(l.resource(j), window{l.seconds(j.start), l.seconds(j.length)})
		}
	}
	return r
}

// take marks a time of a link as used. What takes none may be touched, not interrupted.
func (r *router) take(on resource, w window) { r.busy[on] = append(r.busy[on], w) }

// portalMessage is a message through a portal: it may start when it is ready and must have ended when it is due.
type portalMessage struct {
	gate
	on                 resource
	source             int // device
	length, ready, due float64
}

// messages lists the messages of portals: of one period, or one minibatch of a flush plan.
func (r *router) messages(portals []Portal) (all []portalMessage) {
	for _, p := range portals {
		for m := range r.repeats {
			all = r.message(all, gate{CF, p.From, p.To, m}, r.at[place{F, p.From, m}], r.at[place{F, p.To, m}], p.Bytes)
			all = r.message(all, gate{CB, p.From, p.To, m}, r.at[place{B, p.To, m}], r.at[place{B, p.From, m}], p.Bytes)
		}
	}
	return all
}

// message adds the message between two tasks, unless they are on one device.
func (r *router) message(all []portalMessage, g gate, x, y *job, bytes int64) []portalMessage {
	if x.device == y.device {
		return all
	}
	return append(all, portalMessage{
		gate: g, source: x.device, on: r.resource(&job{kind: g.kind, from: x.device, to: y.device}),
		length: r.platform.Seconds(bytes, x.device, y.device), ready: r.seconds(x.end()), due: r.seconds(y.start),
	})
}

// place returns the starts of messages; fits is false when there is none for one of them.
func (r *router) place(all []portalMessage, back Return) (starts []float64, fits bool) {
	starts, order := make([]float64, len(all)), make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[b].due, all[a].due) })
	for _, i := range order {
		m := &all[i]
		if starts[i], fits = r.find(m, m.kind == CF || back == Late); !fits {
			return nil, false
		}
		r.take(m.on, window{starts[i], m.length})
	}
	return starts, true
}

// find returns the last start of a message at which its link is free, or else the first.
func (r *router) find(m *portalMessage, late bool) (start float64, fits bool) {
	if start = m.ready; late {
		start = m.due - m.length
	}
	within := func() bool { return start > m.ready-r.eps && start+m.length < m.due+r.eps }
	for moved := true; moved && within(); {
		moved = false
		for _, w := range r.busy[m.on] {
			from, collides := r.collides(w, window{start, m.length})
			if moved = moved || collides; !collides {
				continue
			}
			if start = from + w.length; late {
				start = from - m.length
			}
		}
	}
	return max(start, m.ready), within()
}

// collides reports whether two windows of a link overlap, and where w begins then, the last of its repetitions that does.
func (r *router) collides(w, x window) (from float64, collides bool) {
	if r.every > 0 {
		if w.length+x.length > r.every+r.eps {
			return math.Inf(-1), true
		}
		w.from += math.Floor((x.from+x.length-r.eps-w.from)/r.every) * r.every
	}
	return w.from, w.from < x.from+x.length-r.eps && x.from < w.from+w.length-r.eps
}

// within returns a start within the period, and its shift.
func (r *router) within(start float64, residue int) (float64, int) {
	if r.every == 0 {
		return max(start, 0), residue
	}
	periods := math.Floor(start / r.every)
	if start = max(start-periods*r.every, 0); start >= r.every { // by rounding
		start, periods = 0, periods+1
	}
	return start, residue - int(periods)*r.repeats
}
