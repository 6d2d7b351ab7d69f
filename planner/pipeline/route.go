package pipeline

import (
	"cmp"
	"math"
	"slices"
)

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

// take marks a time of a link as used. Uses of no length may touch it, not interrupt it.
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

// Return says when gradients go back through portals.
type Return uint8

const (
	// Late: when they are needed. They wait on the device that has made them.
	Late Return = iota
	// Soon: when they are made. They wait where they are needed.
	Soon
)
