package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
	"plimsoll/runtime/world"
)

// openWays opens the ways of all channels between processes.
func (comp *compilation) openWays() error {
	if comp.opt.World == nil {
		return nil
	}
	ranks := comp.opt.World.Ranks
	var ways []world.Way
	add := func(name string, from, to int, bytes int64) (*remote, bool) {
		if !comp.opt.World.parts(from, to) {
			return nil, false
		}
		r := comp.end(len(ways), from, to)
		ways = append(ways, world.Way{Name: name, From: ranks[from], To: ranks[to], Bytes: bytes, Device: r.dev})
		return r, true
	}
	for _, l := range comp.channels {
		if r, ok := add(l.String(), l.from, l.to, l.longest()); ok {
			l.remote = r
			if err := comp.receives(l); err != nil {
				return err
			}
		}
	}
	for _, b := range comp.halfDuplexes() {
		for i := range b.ends {
			name := fmt.Sprintf("turns of the link from device %d to %d", b.ends[i], b.ends[1-i])
			if r, ok := add(name, b.ends[i], b.ends[1-i], 0); ok {
				b.remote[i] = r
			}
		}
	}
	for s := range comp.order.On {
		x, next := comp.evaluationOf(s), comp.evaluationOf(s+1)
		if x.stage == nil || next.stage == nil {
			continue
		}
		if r, ok := add(x.String(), x.driver.Number, next.driver.Number, comp.entryBytes(s+1)); ok && r.dev != nil {
			x.remote = r
		}
	}
	return comp.opt.World.Transport.Open(ways)
}

// receives makes the stream on which messages of a channel come.
func (comp *compilation) receives(l *channel) (err error) {
	d := comp.driver(l.to)
	l.remote.incoming, err = d.newQueue(fmt.Sprintf("from device %d, %v", l.from, l))
	d.incoming = append(d.incoming, l.remote.incoming)
	return err
}

// end returns the end of a way that is here, if one is.
func (comp *compilation) end(way, from, to int) *remote {
	r := &remote{way: way, launches: map[runtime.Span]table.Prepared{}}
	switch {
	case comp.opt.World.has(from):
		r.dev, r.prepare = comp.driver(from).Dev, comp.opt.World.Transport.Send
	case comp.opt.World.has(to):
		r.dev, r.prepare = comp.driver(to).Dev, comp.opt.World.Transport.Receive
	}
	return r
}

// admit returns the commands that receive into a block, after its users so far.
func (l *channel) admit(block int, dst runtime.Span, launch table.Prepared) [4]table.Command {
	q, behind := l.remote.incoming, l.freed[block]
	if l.copied != nil {
		behind = l.copied[block]
	}
	launch.Accesses = []hazard.Access{{Device: l.to, Span: dst, Write: true}}
	return [...]table.Command{
		{Verb: table.DoWait, On: q, Event: l.freed[block]}, {Verb: table.DoWait, On: q, Event: behind},
		{Verb: table.DoReceive, On: q, Prepared: launch, Way: l.remote.way, Dst: dst}, {Verb: table.DoRecord, On: q, Event: l.arrived[block]},
	}
}
