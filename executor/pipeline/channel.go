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

// channels returns the channels of a plan, with as many blocks as the plan has messages at one time: from the start of the
// communication until the receiver has done with them.
func (o *order) channels() []*channel {
	var all []*channel
	for s := range len(o.on) - 1 {
		for _, kind := range []pipeline.Kind{pipeline.CF, pipeline.CB} {
			all = append(all, o.boundaryChannels(kind, s)...)
		}
	}
	for _, p := range o.plan.Portals {
		for _, kind := range []pipeline.Kind{pipeline.CF, pipeline.CB} {
			all = append(all, o.portalChannels(kind, p)...)
		}
	}
	return all
}

func (o *order) boundaryChannels(kind pipeline.Kind, s int) (all []*channel) {
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

// reads returns the kind of the last task of a stage that reads δ of its output.
func (o *order) reads(s int) pipeline.Kind {
	if o.late[s] {
		return pipeline.W
	}
	return pipeline.B
}

// leaves returns the kind of the last task of a stage.
func (o *order) leaves(s int) pipeline.Kind {
	if o.split[s] {
		return pipeline.W
	}
	return pipeline.B
}

// sendSlots returns how many slots of a send buffer a device needs for what the tasks of a kind, F or B, of a stage send to
// other devices: as many as its driver fills before it issues their communications, and as the plan has at one time from the
// start of the task until the communication has ended, so that no task waits for one.
func (o *order) sendSlots(kind pipeline.Kind, s, device int) int {
	carries, boundary, skips := pipeline.CF, s, o.leavingBy(s)
	if kind == pipeline.B {
		carries, boundary, skips = pipeline.CB, s-1, nil
	}
	var times []pipeline.Interval
	for r := range o.repeats {
		if o.onDevice(s, r, device) && o.crosses(boundary, r) {
			end := o.work.During(carries, boundary, 0, r).To
			for _, p := range skips {
				end = max(end, o.work.During(carries, p.From, p.To, r).To)
			}
			times = append(times, pipeline.Interval{From: o.work.During(kind, s, 0, r).From, To: end})
		}
	}
	left := map[int]int{} // messages, by minibatch
	return max(o.work.Most(times), o.most(device, func(v instance) int {
		switch {
		case v.kind == kind && v.stage == s && o.crosses(boundary, o.residue(v.minibatch)):
			left[v.minibatch] = 1 + len(skips)
			return 1
		case v.kind == carries && v.stage == boundary && (v.far == 0 || len(skips) > 0):
			if left[v.minibatch]--; left[v.minibatch] == 0 {
				return -1
			}
		}
		return 0
	}))
}

// leavingBy returns the portals by which skips leave a stage.
func (o *order) leavingBy(s int) (all []pipeline.Portal) {
	for _, p := range o.plan.Portals {
		if p.From == s {
			all = append(all, p)
		}
	}
	return all
}

// departs reports whether the output of a stage, skips and all, leaves a device for every minibatch.
func (o *order) departs(s, device int) bool {
	for r := range o.repeats {
		if !o.onDevice(s, r, device) {
			continue
		}
		stays := slices.ContainsFunc(o.leavingBy(s), func(p pipeline.Portal) bool { return o.onDevice(p.To, r, device) })
		if stays || !o.crosses(s, r) {
			return false
		}
	}
	return s+1 < len(o.on)
}

// lingers reports whether the second half of a backward reads the output of an earlier stage on the same device.
func (o *order) lingers(s, device int) bool {
	for r := range o.repeats {
		if o.onDevice(s, r, device) && s+1 < len(o.on) && o.split[s+1] && !o.crosses(s, r) {
			return true
		}
		for _, p := range o.plan.Portals {
			if p.From == s && o.split[p.To] && o.onDevice(s, r, device) && o.onDevice(p.To, r, device) {
				return true
			}
		}
	}
	return false
}

// localReturns returns how many δ of the output of a stage wait on a device for the backward of the stage, when they come from the
// next stage on the same device.
func (o *order) localReturns(s, device int) int {
	return o.most(device, func(v instance) int {
		switch {
		case v.kind == pipeline.B && v.stage == s+1 && o.onDevice(s, v.minibatch, device):
			return 1
		case v.kind == o.reads(s) && v.stage == s && s+1 < len(o.on) && o.onDevice(s+1, v.minibatch, device):
			return -1
		}
		return 0
	})
}

// most returns the largest sum of changes in a run, instruction by instruction.
func (o *order) most(device int, change func(instance) int) (most int) {
	now := 0
	_ = o.instances(device, o.long(), func(v instance) error {
		now += change(v)
		most = max(most, now)
		return nil
	})
	return most
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
