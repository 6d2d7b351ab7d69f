package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/order"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// between returns a channel for what no task of the plan carries, of a stage.
func between(what string, stage, from, to, blocks int) *channel {
	l := newChannel(0, none, from, to, blocks)
	l.what, l.stage = what, stage
	return l
}

// longest returns the bytes of the longest message.
func (l *channel) longest() (bytes int64) {
	for _, b := range l.blocks {
		bytes = max(bytes, b.Bytes)
	}
	return bytes
}

// newChannel returns a channel with so many blocks, which have no place yet.
func newChannel(kind pipeline.Kind, boundary, from, to, blocks int) *channel {
	l := &channel{kind: kind, boundary: boundary, from: from, to: to}
	l.size(blocks)
	return l
}

func (l *channel) size(blocks int) {
	l.blocks = make([]runtime.Span, blocks)
	l.grants, l.arrivals = make(chan int, blocks), make(chan arrival, blocks)
	l.early = make([]arrival, 0, blocks)
	l.free = make([]chan struct{}, blocks)
	l.sent, l.deliveries = make([]chan struct{}, blocks), make([][]delivery, blocks)
	for i := range l.free {
		l.free[i], l.sent[i] = make(chan struct{}, 1), make(chan struct{}, 1)
	}
}

// layOut places the blocks in the receiver's arena.
func (l *channel) layOut(g *allocator) {
	for i := range l.blocks {
		l.blocks[i] = g.alloc(l.bytes)
	}
}

// delivers notes what comes into a block.
func (l *channel) delivers(block int, x delivery) {
	l.deliveries[block] = append(l.deliveries[block], x)
}

// channelsOf returns the channels of a plan: of all boundaries, then of all portals.
func channelsOf(o *order.Order) (all []*channel) {
	var ways []pipeline.Portal
	for s := range len(o.On) - 1 {
		ways = append(ways, pipeline.Portal{From: s})
	}
	for _, p := range append(ways, o.Plan.Portals...) {
		for _, kind := range []pipeline.Kind{pipeline.CF, pipeline.CB} {
			all = append(all, planChannels(o, kind, p)...)
		}
	}
	return all
}

// planChannels returns the channels of a portal, or of a boundary, whose other stage is 0. They have as many blocks as the plan has messages in
// them at one time: from the start of the communication until the receiver has done with them.
func planChannels(o *order.Order, kind pipeline.Kind, p pipeline.Portal) (all []*channel) {
	times, next := map[[2]int][]pipeline.Interval{}, p.To
	if next == 0 {
		next = p.From + 1
	}
	for r := range o.Repeats {
		from, to := o.Through(order.PortalTask{Kind: kind, From: p.From, To: next, Residue: r})
		if from == to {
			continue
		}
		end := o.Work.During(o.Reads(p.From), p.From, 0, r).To
		if kind == pipeline.CF {
			end = o.Work.During(o.Leaves(next), next, 0, r).To
			if p.To == 0 && o.OffloadsInput(next) {
				end = o.Work.Ops[next].Held
			}
		}
		pair := [2]int{from, to}
		if times[pair] == nil {
			l := newChannel(kind, p.From, from, to, 0)
			l.far, l.bytes = p.To, p.Bytes
			all = append(all, l)
		}
		times[pair] = append(times[pair], pipeline.Interval{From: o.Work.During(kind, p.From, p.To, r).From, To: end})
	}
	for _, l := range all {
		l.size(o.Work.Most(times[[2]int{l.from, l.to}]))
	}
	return all
}

// String names the channel in errors.
func (l *channel) String() string {
	if l.what != "" {
		return fmt.Sprintf("%s of stage %d from device %d to %d", l.what, l.stage, l.from, l.to)
	}
	if l.far > 0 {
		return fmt.Sprintf("%v%d-%d from device %d to %d", l.kind, l.boundary, l.far, l.from, l.to)
	}
	return fmt.Sprintf("%v%d from device %d to %d", l.kind, l.boundary, l.from, l.to)
}
