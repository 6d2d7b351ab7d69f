package pipeline

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"plimsoll/runtime"
	"plimsoll/runtime/world"
)

// World is the processes that run one plan together, each with some of its devices. Every process lays out, dry-runs and proves the
// scripts of all devices, so that nobody need be told what others do; it runs its own. What then crosses between two processes is
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
		way := world.Way{Name: name, From: ranks[from], To: ranks[to], Bytes: bytes}
		if r != nil {
			way.Device = r.dev
		}
		ways = append(ways, way)
		return r, r != nil
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
		if r, ok := add(x.String(), x.driver.device, next.driver.device, e.entryBytes(s+1)); ok {
			x.remote = r
		}
	}
	return e.opt.World.Transport.Open(ways)
}

// receives makes the stream on which messages of a channel come, if they come here.
func (e *Executor) receives(l *channel) (err error) {
	if !e.here(l.to) {
		return nil
	}
	d := e.driver(l.to)
	l.remote.incoming, err = d.newQueue(fmt.Sprintf("from device %d, %v", l.from, l))
	d.incoming = append(d.incoming, l.remote.incoming)
	return err
}

// end returns the end of a way that is here; nil when none is.
func (e *Executor) end(way, from, to int) *remote {
	r := &remote{way: way, launches: map[runtime.Span]prepared{}}
	switch {
	case e.here(from):
		r.dev, r.prepare = e.driver(from).dev, e.opt.World.Transport.Send
	case e.here(to):
		r.dev, r.prepare = e.driver(to).dev, e.opt.World.Transport.Receive
	default:
		return nil
	}
	return r
}

// remote is the end in this process of a channel whose other end is in another process.
//
// The receiver has a stream of its own for the channel, and lets the next message come into a block as soon as it would grant that
// to a sender here: so what is sent always has a place, whatever the order in which the messages of several channels are sent and
// used. Which message comes next it knows from the plan.
type remote struct {
	way      int
	prepare  func(way int, span runtime.Span) (runtime.Launch, error)
	dev      runtime.Device // of this end
	launches map[runtime.Span]prepared

	incoming queue // of the receiver
	next     func() (number int, ok bool)
	stop     func()
	expected []arrival // that will come, and are not used yet
}

// launch returns what sends or receives a span.
func (r *remote) launch(span runtime.Span) (prepared, error) {
	if l, ok := r.launches[span]; ok {
		return l, nil
	}
	l, err := r.prepare(r.way, span)
	r.launches[span] = prepared{Launch: l}
	return r.launches[span], err
}

// sendAway sends to another process.
func (d *driver) sendAway(q queue, watch *stopwatch, l *channel, v *instance, ready runtime.Event, src runtime.Span) error {
	launch, err := l.remote.launch(src)
	if err != nil {
		return err
	}
	if err := q.wait(ready); err != nil {
		return err
	}
	if err := watch.start(q, v); err != nil {
		return err
	}
	if err := q.launch(launch); err != nil {
		return err
	}
	if err := watch.end(q); err != nil {
		return err
	}
	l.latest = 0
	return q.record(l.arrived[l.latest])
}

// expect lets the next message of a channel, if there is one, come into a block.
func (d *driver) expect(l *channel, block int) error {
	number, ok := l.remote.next()
	if !ok {
		return nil
	}
	dst := l.blocks[block]
	if n := len(l.sizes); n > 0 {
		dst = dst.Part(0, l.sizes[number%n])
	}
	l.remote.expected = append(l.remote.expected, arrival{number, block})
	steps, err := l.admit(block, dst)
	for i := 0; i < len(steps) && err == nil; i++ {
		err = d.put(&steps[i])
	}
	return err
}

// admit returns what receives into a block, behind what has used it so far.
func (l *channel) admit(block int, dst runtime.Span) (steps [4]command, err error) {
	launch, err := l.remote.launch(dst)
	q, behind := l.remote.incoming, l.freed[block]
	if l.copied != nil {
		behind = l.copied[block]
	}
	return [...]command{
		{verb: doWait, on: q, event: l.freed[block]}, {verb: doWait, on: q, event: behind},
		{verb: doLaunch, on: q, prepared: launch}, {verb: doRecord, on: q, event: l.arrived[block]},
	}, err
}

// take returns the block into which the message of a number comes. Where the receiver asks for messages without one it is the next.
func (r *remote) take(l *channel, minibatch int) (block int, err error) {
	i := slices.IndexFunc(r.expected, func(a arrival) bool { return l.asked && l.kind == 0 || a.minibatch == minibatch })
	if i < 0 {
		return none, fmt.Errorf("BUG: no message %d comes by %v", minibatch, l)
	}
	block = r.expected[i].block
	r.expected = slices.Delete(r.expected, i, i+1)
	return block, nil
}

// expectFirst lets the first messages of a run come, of a plan whose drivers have no scripts, which say when they do.
func (d *driver) expectFirst(running []runningSegment) error {
	if d.dryRun || d.script != nil {
		return nil
	}
	for _, l := range d.e.channels {
		if l.remote == nil || l.to != d.device {
			continue
		}
		l.remote.next, l.remote.stop = iter.Pull(d.e.messages(l, running))
		for i := 0; i < len(l.blocks) && !l.asked; i++ {
			if err := d.expect(l, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// expectNothing ends what a run has expected.
func (e *Executor) expectNothing() {
	for _, l := range e.channels {
		if r := l.remote; r != nil && r.stop != nil {
			r.stop()
			r.stop, r.expected = nil, r.expected[:0]
		}
	}
}

// messages numbers the messages of a channel in a run, in the order in which they are sent.
func (e *Executor) messages(l *channel, running []runningSegment) iter.Seq[int] {
	return func(yield func(int) bool) {
		number := 0
		count := func(n int) error {
			for range n {
				if !yield(number) {
					return ErrStopped
				}
				number++
			}
			return nil
		}
		for _, seg := range running {
			var err error
			switch {
			case !seg.in(0):
				return
			case l.kind != 0:
				err = e.order.within(e.order.sending(l), seg.bound, func(v instance) error {
					if !yield(e.order.number(v)) {
						return ErrStopped
					}
					return nil
				})
			case l.asked:
				err = count(math.MaxInt)
			default: // an update's sums of gradients
				for m := 0; seg.in(m) && err == nil; m += e.rules[l.stage].group {
					err = count(len(l.sizes))
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// sending returns the instructions that send by a channel.
func (o *order) sending(l *channel) (all []instruction) {
	for _, t := range o.instructions[l.from] {
		if t.kind == l.kind && t.stage == l.boundary && t.far == l.far && t.to == l.to {
			all = append(all, t)
		}
	}
	return all
}

// signal lets a link between two processes change its direction: by a message without bytes, sent or received.
func (b *halfDuplex) signal(end int, q queue) error {
	launch, err := b.remote[end].launch(runtime.Span{})
	if err != nil {
		return err
	}
	return q.launch(launch)
}
