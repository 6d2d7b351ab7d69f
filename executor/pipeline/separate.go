package pipeline

import (
	"slices"

	"plimsoll/runtime"
)

// separate turns the scripts of this process's devices, which are proved as if all devices were in one process, into what they do
// where some are in others: a message is sent, and received into the block that it would be copied into, behind the same users of
// the block and before the same ones. What drivers would tell each other falls away: the order of the messages says it.
func (e *Executor) separate() error {
	if e.opt.World == nil || !e.order.plan.IsFlush() {
		return nil
	}
	x := e.newSeparation()
	for _, d := range e.own() {
		if err := x.driver(d); err != nil {
			return err
		}
	}
	return nil
}

// separation is what the scripts of all devices say of what crosses between this process and others.
type separation struct {
	e        *Executor
	turns    map[chan struct{}]*channel // nil: of a link that carries one message at a time
	blocks   map[chan struct{}]int      // of the channel, which a turn grants
	coming   map[*channel][]coming      // that are received here, in their order
	unneeded map[runtime.Event]bool     // of a receiver elsewhere
	signals  map[runtime.Event]*remote
	script   []command
}

// coming is a message, and where it comes to.
type coming struct {
	block int
	dst   runtime.Span
}

func (e *Executor) newSeparation() *separation {
	x := &separation{e: e, turns: map[chan struct{}]*channel{}, blocks: map[chan struct{}]int{}, coming: map[*channel][]coming{}, unneeded: map[runtime.Event]bool{}, signals: map[runtime.Event]*remote{}}
	for _, l := range e.channels {
		if l.remote == nil {
			continue
		}
		x.turns[l.sent] = l
		for i, turn := range l.free {
			x.turns[turn], x.blocks[turn] = l, i
		}
		if e.here(l.to) {
			x.coming[l] = e.driver(l.from).sends(l)
			continue
		}
		for _, ev := range slices.Concat(l.freed, l.copied) {
			x.unneeded[ev] = true
		}
	}
	for _, c := range e.collectives {
		if c != nil { // which waits for the others itself
			for _, turn := range slices.Concat(c.turns[0], c.turns[1]) {
				x.turns[turn] = nil
			}
		}
	}
	for _, b := range e.halfDuplex {
		for i, r := range b.remote {
			if r != nil {
				x.turns[b.passed[i]], x.signals[b.event[i]] = nil, r
			}
		}
	}
	return x
}

// sends returns the messages that the script of a driver sends by a channel.
func (d *driver) sends(l *channel) (all []coming) {
	for i := range d.script {
		if c := &d.script[i]; c.verb == doCopy && c.channel == l {
			block := slices.IndexFunc(l.blocks, func(b runtime.Span) bool { return b.Offset == c.dst.Offset })
			all = append(all, coming{block, c.dst})
		}
	}
	return all
}

// driver separates the script of one driver. What may come at once comes first.
func (x *separation) driver(d *driver) error {
	x.script = nil
	for _, l := range d.e.channels {
		if l.to != d.device || l.asked {
			continue
		}
		for free := len(l.blocks); free > 0; free-- {
			if err := x.admit(l, none); err != nil {
				return err
			}
		}
	}
	for i := range d.script {
		if err := x.command(d.script[i]); err != nil {
			return err
		}
	}
	d.script = x.script
	return nil
}

// admit lets the next message of a channel, if there is one, come when a block is granted.
func (x *separation) admit(l *channel, block int) error {
	list := x.coming[l]
	if len(list) == 0 || block != none && list[0].block != block {
		return nil
	}
	x.coming[l] = list[1:]
	steps, err := l.admit(list[0].block, list[0].dst)
	x.script = append(x.script, steps[:]...)
	return err
}

// command adds what becomes of a command.
func (x *separation) command(c command) error {
	switch c.verb {
	case doGive, doTake:
		l, crosses := x.turns[c.turn]
		if !crosses {
			break
		}
		if block, grants := x.blocks[c.turn]; grants && c.verb == doGive {
			return x.admit(l, block)
		}
		return nil
	case doWait, doRecord:
		if x.unneeded[c.event] {
			return nil
		}
		if r := x.signals[c.event]; r != nil {
			return x.launch(c, r, runtime.Span{})
		}
	case doLaunch:
		if u, ok := c.Launch.(*unopened); ok {
			var err error
			if c.Launch, err = x.e.open(u); err != nil {
				return err
			}
		}
	case doCopy:
		if c.channel != nil && c.channel.remote != nil {
			return x.launch(c, c.channel.remote, c.src)
		}
	}
	x.script = append(x.script, c)
	return nil
}

// launch adds a launch of the end of a way in place of a command.
func (x *separation) launch(c command, r *remote, span runtime.Span) (err error) {
	c.verb = doLaunch
	c.prepared, err = r.launch(span)
	x.script = append(x.script, c)
	return err
}
