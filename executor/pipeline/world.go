package pipeline

import (
	"context"
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
	"plimsoll/runtime/world"
)

// World is the processes that run one plan together, each with some of its devices. Every process lays out, dry-runs and proves the
// tables of all devices, so that nobody need be told what others do; it runs its own. What then crosses between two processes is
// bytes alone, each message in the order of its way.
type World struct {
	Ranks     []int // by device: of the process that has it
	Rank      int   // of this process
	Transport world.Transport
	// Broadcast returns the bytes that the process of a rank has given. All processes call it, at the same point of their work.
	Broadcast func(ctx context.Context, rank int, data []byte) ([]byte, error)
	// Fail tells all processes that this one goes on no more. What waits for a message fails.
	Fail func(err error)
}

// here reports whether this process has a device.
func (e *Executor) here(device int) bool {
	return e.opt.World == nil || e.opt.World.Ranks[device] == e.opt.World.Rank
}

// process returns the number of the process that has a device.
func (e *Executor) process(device int) int {
	if e.opt.World == nil {
		return 0
	}
	return e.opt.World.Ranks[device]
}

// parted reports whether two devices are in different processes.
func (e *Executor) parted(a, b int) bool {
	return e.opt.World != nil && e.opt.World.Ranks[a] != e.opt.World.Ranks[b]
}

// own returns the drivers of this process.
func (e *Executor) own() (all []*driver) {
	for _, d := range e.drivers {
		if e.here(d.device) {
			all = append(all, d)
		}
	}
	return all
}

// fail tells the other processes that this one goes on no more.
func (e *Executor) fail(err error) {
	if e.opt.World != nil {
		e.opt.World.Fail(err)
	}
}

// openWays opens the ways of all channels between processes.
func (e *Executor) openWays() error {
	if e.opt.World == nil {
		return nil
	}
	ranks := e.opt.World.Ranks
	var ways []world.Way
	add := func(name string, from, to int, bytes int64) (*remote, bool) {
		if !e.parted(from, to) {
			return nil, false
		}
		r := e.end(len(ways), from, to)
		ways = append(ways, world.Way{Name: name, From: ranks[from], To: ranks[to], Bytes: bytes, Device: r.dev})
		return r, true
	}
	for _, l := range e.channels {
		if r, ok := add(l.String(), l.from, l.to, l.longest()); ok {
			l.remote = r
			if err := e.receives(l); err != nil {
				return err
			}
		}
	}
	for _, b := range e.halfDuplexes() {
		for i := range b.ends {
			name := fmt.Sprintf("turns of the link from device %d to %d", b.ends[i], b.ends[1-i])
			if r, ok := add(name, b.ends[i], b.ends[1-i], 0); ok {
				b.remote[i] = r
			}
		}
	}
	for s := range e.order.on {
		x, next := e.evaluationOf(s), e.evaluationOf(s+1)
		if x.stage == nil || next.stage == nil {
			continue
		}
		if r, ok := add(x.String(), x.driver.device, next.driver.device, e.entryBytes(s+1)); ok && r.dev != nil {
			x.remote = r
		}
	}
	return e.opt.World.Transport.Open(ways)
}

// receives makes the stream on which messages of a channel come.
func (e *Executor) receives(l *channel) (err error) {
	d := e.driver(l.to)
	l.remote.incoming, err = d.newQueue(fmt.Sprintf("from device %d, %v", l.from, l))
	d.incoming = append(d.incoming, l.remote.incoming)
	return err
}

// end returns the end of a way that is here, if one is.
func (e *Executor) end(way, from, to int) *remote {
	r := &remote{way: way, launches: map[runtime.Span]prepared{}}
	switch {
	case e.here(from):
		r.dev, r.prepare = e.driver(from).dev, e.opt.World.Transport.Send
	case e.here(to):
		r.dev, r.prepare = e.driver(to).dev, e.opt.World.Transport.Receive
	}
	return r
}

// remote is a channel between two processes, and its end in this one, if it has one.
//
// The receiver has a stream of its own for the channel, and lets the next message come into a block as soon as it would grant that
// to a sender here: so what is sent always has a place, whatever the order in which the messages of several channels are sent and
// used. Which message comes next it knows from the plan.
type remote struct {
	way      int
	prepare  func(way int, span runtime.Span) (runtime.Launch, error)
	dev      runtime.Device // of the end that is here; nil: none is
	launches map[runtime.Span]prepared
	number   int // of the latest of them

	incoming queue // of the receiver
}

// launch returns what sends or receives a span.
func (r *remote) launch(span runtime.Span) (prepared, error) {
	if l, ok := r.launches[span]; ok {
		return l, nil
	}
	l, err := r.prepare(r.way, span)
	r.number--
	r.launches[span] = prepared{Launch: l, id: r.number<<16 - r.way}
	return r.launches[span], err
}

// admit returns what receives into a block, behind what has used it so far.
func (l *channel) admit(block int, dst runtime.Span, launch prepared) [4]command {
	q, behind := l.remote.incoming, l.freed[block]
	if l.copied != nil {
		behind = l.copied[block]
	}
	launch.accesses = []hazard.Access{{Device: l.to, Span: dst, Write: true}}
	return [...]command{
		{verb: doWait, on: q, event: l.freed[block]}, {verb: doWait, on: q, event: behind},
		{verb: doReceive, on: q, prepared: launch, way: l.remote.way, dst: dst}, {verb: doRecord, on: q, event: l.arrived[block]},
	}
}
