package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
	"plimsoll/runtime/null"
)

// separate rewrites the recordings of the devices, which are made as if all were in one process, for devices in several
// processes. A copy becomes a message, which is received into the block of the copy, after the same users of the block and before
// the same ones. Grants between drivers fall away: the order of the messages replaces them.
func (comp *compilation) separate() error {
	if comp.opt.World == nil {
		return nil
	}
	x := comp.newSeparation()
	for _, d := range comp.drivers {
		if err := x.driver(d); err != nil {
			return err
		}
		ok, err := d.compiler.fold(comp.seen(comp.recorded))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: what device %d tells other processes does not repeat itself within %d minibatches", order.ErrPlan, d.Number, comp.recorded)
		}
	}
	return nil
}

// separation holds the messages between this process and others, from the recordings of all devices.
type separation struct {
	comp     *compilation
	turns    map[chan struct{}]*channel // nil: of a link that carries one message at a time
	blocks   map[chan struct{}]int      // of the channel, which a turn grants
	unneeded map[runtime.Event]int      // of a receiver elsewhere: by whom
	signals  map[runtime.Event]*remote
	opened   map[*unopened]table.Prepared

	d        *driver          // in hand
	to       *table.Recording // of it
	becomes  map[int32]int32  // by number of a command of its recording before: what it is; none: nothing
	granted  map[*channel][]int
	anywhere bool // it is in no period
}

func (comp *compilation) newSeparation() *separation {
	x := &separation{comp: comp, turns: map[chan struct{}]*channel{}, blocks: map[chan struct{}]int{}, unneeded: map[runtime.Event]int{}, signals: map[runtime.Event]*remote{}, opened: map[*unopened]table.Prepared{}}
	for _, l := range comp.channels {
		if l.remote == nil {
			continue
		}
		for i, turn := range l.free {
			x.turns[l.sent[i]], x.turns[turn], x.blocks[turn] = l, l, i
		}
		for _, ev := range slices.Concat(l.freed, l.copied) {
			x.unneeded[ev] = l.from
		}
	}
	for _, c := range comp.collectives {
		if c != nil { // which waits for the others itself
			for _, turn := range slices.Concat(c.turns[0], c.turns[1]) {
				x.turns[turn] = nil
			}
		}
	}
	for _, b := range comp.halfDuplex {
		for i, r := range b.remote {
			if r != nil {
				x.turns[b.passed[i]], x.signals[b.event[i]] = nil, r
			}
		}
	}
	return x
}

// driver separates the commands of one driver. Messages that may come at once come first.
func (x *separation) driver(d *driver) error {
	x.d = d
	from, rows := d.compiler.Recording, d.instructions()
	x.to, x.becomes, x.granted = table.NewRecording(d.binder, d.lay.order.Plan.IsFlush(), len(rows), len(d.stages)), map[int32]int32{}, map[*channel][]int{}
	x.to.Slots, x.to.At = from.Slots, &x.to.Before
	if d.lay.order.Plan.IsFlush() { // a step begins with it
		x.to.Row(0, 0)
	}
	for _, l := range d.lay.channels {
		x.granted[l] = make([]int, len(l.blocks))
		for block := 0; block < len(l.blocks) && l.to == d.Number && l.remote != nil && !l.asked; block++ {
			if err := x.admit(l, block, 0); err != nil {
				return err
			}
		}
	}
	x.to.At = &x.to.Before
	if err := x.list(from, from.Before, 0); err != nil {
		return err
	}
	for _, o := range from.Opens {
		own := table.RecordedOpening{Instance: o.Instance}
		x.to.At = &own.List
		if err := x.list(from, o.List, o.Minibatch); err != nil {
			return err
		}
		x.to.Opens = append(x.to.Opens, own)
	}
	repeats := d.lay.order.Repeats
	least, most := order.Shifts(rows)
	for j := order.FloorDiv(-most, repeats); j*repeats+least < x.comp.recorded; j++ {
		for i, r := range rows {
			m := j*repeats + r.Shift
			k := order.FloorDiv(m, repeats)
			if k < 0 || k >= len(from.Done[i]) {
				continue
			}
			x.to.Row(i, k)
			if err := x.list(from, from.Lists[from.Done[i][k]], m); err != nil {
				return err
			}
		}
	}
	x.to.Close()
	x.anywhere = true
	defer func() { x.anywhere = false }()
	for s, list := range from.Behind {
		x.to.At = &x.to.Behind[s]
		if err := x.list(from, list, 0); err != nil {
			return err
		}
	}
	d.compiler.Recording = x.to
	return nil
}

// list adds what becomes of commands of a minibatch.
func (x *separation) list(from *table.Recording, numbers []int32, minibatch int) error {
	for _, n := range numbers {
		c := from.Commands[n]
		if block, grants := x.blocks[c.Turn]; grants && c.Verb == table.DoGive && x.turns[c.Turn] != nil {
			if err := x.admit(x.turns[c.Turn], block, minibatch); err != nil {
				return err
			}
			continue
		}
		now, known := x.becomes[n]
		if !known {
			next, stays, err := x.command(*c)
			if err != nil {
				return err
			}
			if now = none; stays {
				now = x.to.Number(next)
			}
			x.becomes[n] = now
		}
		if now != none {
			*x.to.At = append(*x.to.At, now)
		}
	}
	return nil
}

// admit lets the message that comes next into a block, if there is one, come when the block is granted with a minibatch.
func (x *separation) admit(l *channel, block, minibatch int) error {
	n := x.granted[l][block]
	x.granted[l][block]++
	if n >= len(l.deliveries[block]) {
		return nil
	}
	next := l.deliveries[block][n]
	launch, err := x.prepare(l.remote, next.dst)
	for _, c := range l.admit(block, next.dst, launch) {
		if !x.anywhere && !x.comp.order.Plan.IsFlush() {
			c.Ahead = next.minibatch - minibatch
		}
		*x.to.At = append(*x.to.At, x.to.Number(c))
	}
	return err
}

// command returns the command that replaces a command; false: none.
func (x *separation) command(c table.Command) (next table.Command, stays bool, err error) {
	switch c.Verb {
	case table.DoGive, table.DoTake:
		_, crosses := x.turns[c.Turn]
		return c, !crosses, nil
	case table.DoWait, table.DoRecord:
		if sender, parted := x.unneeded[c.Event]; parted && sender == x.d.Number {
			return c, false, nil
		}
		if r := x.signals[c.Event]; r != nil {
			return x.message(c, r, runtime.Span{})
		}
	case table.DoLaunch:
		if u, ok := c.Launch.(*unopened); ok && x.comp.opt.World.has(x.d.Number) {
			c.Prepared, err = x.open(u, c.Prepared)
		}
	case table.DoCopy:
		if l, ok := c.Channel.(*channel); ok && l.remote != nil {
			return x.message(c, l.remote, c.Src)
		}
	}
	return c, true, err
}

// open returns a launch of a sum that another one stands for.
func (x *separation) open(u *unopened, l table.Prepared) (table.Prepared, error) {
	if now, ok := x.opened[u]; ok {
		return now, nil
	}
	launch, err := x.comp.open(u)
	x.comp.launches--
	x.opened[u] = table.Prepared{Launch: launch, ID: x.comp.launches, Accesses: l.Accesses}
	return x.opened[u], err
}

// message returns the command that sends a span in place of a command, or receives one in place of a wait.
func (x *separation) message(c table.Command, r *remote, span runtime.Span) (_ table.Command, stays bool, err error) {
	receives := c.Verb == table.DoWait
	c.Verb, c.Way = table.DoSend, r.way
	if receives {
		c.Verb = table.DoReceive
	}
	c.Prepared, err = x.prepare(r, span)
	if span.Bytes > 0 {
		c.Accesses = []hazard.Access{{Device: x.d.Number, Span: span}}
	}
	return c, true, err
}

// prepare returns the launch that sends or receives a span at the present driver's end of a channel. For a device in another process a
// stand-in is returned.
func (x *separation) prepare(r *remote, span runtime.Span) (table.Prepared, error) {
	if !x.comp.opt.World.has(x.d.Number) {
		return table.Prepared{Launch: null.Cost{Name: "a message"}}, nil
	}
	return r.launch(span)
}
