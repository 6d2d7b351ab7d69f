package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// newSynchronizations makes the channels of messages between replicas.
func (e *Executor) newSynchronizations() {
	e.replicas = make([]sumChannels, len(e.order.sums))
	for s, x := range e.order.sums {
		if x == nil || e.collectives[s] != nil {
			continue
		}
		places, l := e.bucketPlaces(s), &e.replicas[s]
		l.gathers = map[[2]int]*channel{}
		if x.divided() {
			e.newScatters(s, places)
		}
		for i, from := range x.line[:len(x.line)-1] {
			if x.divided() {
				break
			}
			c := between("partial gradients", s, from, x.line[i+1], x.mostReduces())
			for _, p := range places {
				c.sizes, c.bytes = append(c.sizes, p.Bytes), max(c.bytes, p.Bytes)
			}
			c.kind, c.boundary = pipeline.Reducing, s
			l.reduces, e.channels = append(l.reduces, c), append(e.channels, c)
		}
		for _, m := range e.order.plan.Synchronization {
			ends := [2]int{m.From, m.To}
			if m.Stage != s || m.Kind != pipeline.Gather || l.gathers[ends] != nil {
				continue
			}
			c := between("gradients", s, m.From, m.To, 0)
			c.kind, c.boundary, c.asked = pipeline.Gathering, s, true
			l.gathers[ends], e.channels = c, append(e.channels, c)
		}
	}
}

// laySums lays out what a device has of the sums of a stage, if the plan has messages for them.
func (e *Executor) laySums(t *localStage, c *chain.Chain, g *allocator) {
	x := e.order.sums[t.stage]
	if x == nil {
		return
	}
	n, slots, channels := len(x.buckets), len(t.grads), &e.replicas[t.stage]
	t.sums = &replicaSums{
		synchronization: x, sumChannels: channels, at: slices.Index(x.line, t.device), places: e.bucketPlaces(t.stage), parts: x.madeBehind(t.spec, c, e.order.split[t.stage]),
		made: make([]runtime.Event, slots*n), added: make([]runtime.Event, slots*n), whole: make([]runtime.Event, slots*n), left: make([]runtime.Event, slots*len(x.line)),
	}
	if t.sums.at > 0 && len(channels.reduces) > 0 {
		channels.reduces[t.sums.at-1].layOut(g)
	}
	for _, from := range x.line {
		if l := channels.scatters[[2]int{from, t.device}]; l != nil {
			l.layOut(g)
		}
	}
	for ends, l := range channels.gathers {
		if ends[1] != t.device {
			continue
		}
		l.size(slots * n)
		for i := range l.blocks {
			if l.blocks[i] = t.gradientsOf(i/n, i%n); x.divided() {
				l.blocks[i] = t.weightsOf(i % n)
			}
		}
	}
	for i := range t.ops {
		for _, list := range t.ops[i].tasks {
			findCloses(x, list)
		}
	}
}

// findCloses finds, for the ops of a task, the buckets whose gradients are made behind them.
func findCloses(x *synchronization, list []op) {
	for i := range list {
		list[i].closes = nil
	}
	for n, b := range x.buckets {
		for i := range slices.Backward(list) {
			if o := &list[i]; o.gradients && o.layer >= b.first && o.layer <= b.last {
				o.closes = append(o.closes, n)
				break
			}
		}
	}
}

// events returns where those of the sums go.
func (x *replicaSums) events() []*runtime.Event {
	if x == nil {
		return nil
	}
	return slices.Concat(each(x.made), each(x.added), each(x.left))
}

// begin forgets what has come.
func (x *replicaSums) begin() {
	if x != nil {
		clear(x.whole)
	}
}

// made says that the gradients of some buckets are made with a minibatch, if it closes them.
func (d sumCompiler) made(t *localStage, f *inFlight, buckets []int, closes bool) error {
	for _, b := range buckets {
		if err := d.compute.recordIf(closes, t.sums.made[f.at.sum*len(t.sums.buckets)+b]); err != nil {
			return err
		}
	}
	return nil
}

// adds reports whether a task of a minibatch adds to gradients that the plan has messages for.
func (s *localStage) adds(kind pipeline.Kind, f *inFlight) bool {
	return s.sums != nil && kind != pipeline.F && s.opsOf(f.minibatch).writes(kind)
}

// closes reports whether a task of a minibatch is the last that adds to some gradients of its update.
func (d sumCompiler) closes(t *localStage, kind pipeline.Kind, f *inFlight) bool {
	return t.adds(kind, f) && d.e.order.closes(kind, t.stage, f.minibatch)
}

// synchronize issues a message between replicas, or lets one come.
func (d sumCompiler) synchronize(ctx context.Context, t *localStage, v instance) error {
	x, n := t.sums, len(t.sums.buckets)
	if x.divided() {
		return d.exchange(ctx, t, v, 0) // a step has one sum of gradients
	}
	slot, fresh := t.stash.sum(v.minibatch / t.stash.group)
	if fresh {
		return fmt.Errorf("BUG: %v of minibatch %d comes before its gradients", v.instruction, v.minibatch)
	}
	i, src := slot*n+v.bucket, t.gradientsOf(slot, v.bucket)
	switch v.kind {
	case pipeline.Admitting: // this device's part is in what comes: all that has used the place is behind it
		return d.grant(x.gathers[[2]int{v.to, d.device}], i)
	case pipeline.Owning:
		return d.addPartial(ctx, t, v, slot)
	case pipeline.Reducing:
		ready := x.added[i]
		if x.at == 0 {
			ready = x.made[i]
		}
		return d.message(ctx, x.reduces[x.at], v, ready, src, nil)
	}
	ready, err := d.total(ctx, t, v, slot)
	if err != nil {
		return err
	}
	left := x.left[slot*len(x.line)+slices.Index(x.line, v.to)]
	return d.message(ctx, x.gathers[[2]int{d.device, v.to}], v, ready, src, left)
}

// addPartial makes the gradients of a bucket the sum of those of the replicas up to this one.
func (d sumCompiler) addPartial(ctx context.Context, t *localStage, v instance, slot int) error {
	x, i := t.sums, slot*len(t.sums.buckets)+v.bucket
	l := x.reduces[x.at-1]
	block, err := d.take(ctx, l, x.number(v))
	if err != nil {
		return err
	}
	sum := t.gradientsOf(slot, v.bucket)
	add, err := d.binder.add(sum, l.blocks[block].Part(0, sum.Bytes))
	if err != nil {
		return err
	}
	if x.at == len(x.line)-1 {
		x.whole[i] = x.added[i]
	}
	q := d.adding
	for _, step := range []func() error{
		func() error { return q.wait(x.made[i]) },
		func() error { return q.wait(l.arrived[block]) },
		func() error { return q.launch(add) },
		func() error { return q.record(l.freed[block]) },
		func() error { return d.grant(l, block) },
		func() error { return q.record(x.added[i]) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// total returns the event behind which the gradients of a bucket are the sum of those of all replicas.
func (d sumCompiler) total(ctx context.Context, t *localStage, v instance, slot int) (runtime.Event, error) {
	x, i := t.sums, slot*len(t.sums.buckets)+v.bucket
	if x.whole[i] != nil {
		return x.whole[i], nil
	}
	from := x.sources[arrivalOf{d.e.order.residue(v.minibatch), v.bucket, d.device}]
	l := x.gathers[[2]int{from, d.device}]
	block, err := d.take(ctx, l, x.number(v))
	if err != nil {
		return nil, err
	}
	x.whole[i] = l.arrived[block]
	return x.whole[i], nil
}

// collect waits for the sums of all buckets in a slot, of an update of which a minibatch is the last, and until all that was sent of
// them has left.
func (d sumCompiler) collect(ctx context.Context, t *localStage, minibatch, slot int) error {
	x := t.sums
	if x.divided() {
		return d.collectOwn(t, slot)
	}
	if x.together != nil {
		return d.collectSums(t, minibatch, slot)
	}
	for _, b := range x.arriving(d.e.order.residue(minibatch)) {
		v := instance{instruction{kind: pipeline.Update, stage: t.stage, bucket: b}, minibatch}
		whole, err := d.total(ctx, t, v, slot)
		if err != nil {
			return err
		}
		x.whole[slot*len(x.buckets)+b] = nil
		if err := d.compute.wait(whole); err != nil {
			return err
		}
	}
	return d.waitForLeft(t, slot)
}

// pausePart is a launch that stands for a part of a backward in simulated time, and the buckets that are made behind it.
type pausePart struct {
	runtime.Launch
	buckets []int
}

// pauses returns the parts of a task that takes so long.
func (x *replicaSums) pauses(name string, length time.Duration) (all []pausePart) {
	behind := 0.0
	for _, end := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(x.parts), 1)))) {
		part := pausePart{Launch: host.Pause("simulated part of "+name, time.Duration((end-behind)*float64(length)))}
		for b, at := range x.parts {
			if at == end {
				part.buckets = append(part.buckets, b)
			}
		}
		all, behind = append(all, part), end
	}
	return all
}
