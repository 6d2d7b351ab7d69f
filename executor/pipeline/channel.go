package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// channel is the way of one kind of message, a_l or δ_l of a boundary, from one device to another. It ends in blocks of the
// receiver's arena. The receiver grants its blocks one by one as they fall free, the sender says which minibatch has
// arrived in which: the two drivers share nothing but these messages and the events in them.
type channel struct {
	kind     pipeline.Kind
	boundary int // the stage before it
	far      int // the stage at the other end of a portal; 0: the next one
	from, to int
	bytes    int64
	blocks   []runtime.Span // in the arena of the receiver

	grants     chan int // numbers of blocks that are free behind their event freed
	arrivals   chan arrival
	free       []chan struct{} // by block: the turns of tables, as grants
	sent       []chan struct{} // likewise, as arrivals
	early      []arrival       // that the receiver has taken and not yet used
	deliveries [][]delivery    // by block, of a dry run
	asked      bool            // the receiver grants its blocks only when it asks for a message
	latest     int             // the block that the sender has sent to last

	arrived []runtime.Event // by block, of the sender
	freed   []runtime.Event // by block, of the receiver
	copied  []runtime.Event // likewise, when it has copied the block to the host; nil: it does not

	what   string // of a stage goes by it, where it carries no task of the plan
	stage  int
	remote *remote // when its ends are in two processes, of which this one has one; else nil
	sizes  []int64 // bytes of messages that follow each other, where they differ, again and again; nil: each fills its block
}

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

// delivery is a message of a minibatch, and where it comes to.
type delivery struct {
	minibatch int
	dst       runtime.Span
}

// delivers notes what comes into a block.
func (l *channel) delivers(block int, x delivery) {
	l.deliveries[block] = append(l.deliveries[block], x)
}

// arrival says that a minibatch's message is in a block behind its event arrived.
type arrival struct{ minibatch, block int }

// grant gives a block back to the sender.
func (d *compiler) grant(l *channel, block int) error {
	l.grants <- block
	d.noteTurn(doGive, l.free[block])
	return nil
}

// granted returns a block to send to, when the receiver has granted one.
func (d *compiler) granted(ctx context.Context, l *channel) (block int, err error) {
	if block, err = receive(ctx, l.grants); err == nil {
		d.noteTurn(doTake, l.free[block])
	}
	return block, err
}

// arrives tells the receiver in which block a message is.
func (d *compiler) arrives(l *channel, a arrival) {
	l.arrivals <- a
	d.noteTurn(doGive, l.sent[a.block])
}

// take returns the block in which the message of a minibatch arrives, when the sender has issued it.
func (d *compiler) take(ctx context.Context, l *channel, minibatch int) (block int, err error) {
	for i, a := range l.early {
		if a.minibatch == minibatch {
			l.early = slices.Delete(l.early, i, i+1)
			d.noteTurn(doTake, l.sent[a.block])
			return a.block, nil
		}
	}
	for {
		a, err := receive(ctx, l.arrivals)
		if err != nil {
			return none, err
		}
		if a.minibatch == minibatch {
			d.noteTurn(doTake, l.sent[a.block])
			return a.block, nil
		}
		l.early = append(l.early, a)
	}
}

// channelsOf returns the channels of a plan, with as many blocks as the plan has messages at one time: from the start of the
// communication until the receiver has done with them.
func channelsOf(o *order) []*channel {
	var all []*channel
	for s := range len(o.on) - 1 {
		for _, kind := range []pipeline.Kind{pipeline.CF, pipeline.CB} {
			all = append(all, boundaryChannels(o, kind, s)...)
		}
	}
	for _, p := range o.plan.Portals {
		for _, kind := range []pipeline.Kind{pipeline.CF, pipeline.CB} {
			all = append(all, portalChannels(o, kind, p)...)
		}
	}
	return all
}

func boundaryChannels(o *order, kind pipeline.Kind, s int) (all []*channel) {
	times := map[[2]int][]pipeline.Interval{}
	for r := range o.repeats {
		from, to := o.ends(kind, s, r)
		if from == to {
			continue
		}
		end := o.work.During(o.reads(s), s, 0, r).To
		if kind == pipeline.CF {
			end = o.work.During(o.leaves(s+1), s+1, 0, r).To
			if o.offloadsInput(s + 1) {
				end = o.work.Ops[s+1].Held
			}
		}
		pair := [2]int{from, to}
		if times[pair] == nil {
			all = append(all, newChannel(kind, s, from, to, 0))
		}
		times[pair] = append(times[pair], pipeline.Interval{From: o.work.During(kind, s, 0, r).From, To: end})
	}
	for _, l := range all {
		l.size(o.work.Most(times[[2]int{l.from, l.to}]))
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
