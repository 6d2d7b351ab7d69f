package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// newSynchronizations makes the channels of messages between replicas.
func (lay *layout) newSynchronizations() {
	lay.replicas, lay.scatters = make([]sumChannels, len(lay.order.Sums)), map[[2]int]*channel{}
	for s, x := range lay.order.Sums {
		if x == nil || lay.collectives[s] != nil {
			continue
		}
		places, l := lay.bucketPlaces(s), &lay.replicas[s]
		l.gathers = map[[2]int]*channel{}
		if x.Divided() {
			lay.newScatters(s, places)
		}
		for i, from := range x.Line[:len(x.Line)-1] {
			if x.Divided() {
				break
			}
			c := between("partial gradients", s, from, x.Line[i+1], x.MostReduces())
			for _, p := range places {
				c.sizes, c.bytes = append(c.sizes, p.Bytes), max(c.bytes, p.Bytes)
			}
			c.kind, c.boundary = pipeline.Reducing, s
			l.reduces, lay.channels = append(l.reduces, c), append(lay.channels, c)
		}
		for _, m := range lay.order.Plan.Synchronization {
			ends := [2]int{m.From, m.To}
			if m.Stage != s || m.Kind != pipeline.Gather || l.gathers[ends] != nil || x.Fetches() {
				continue
			}
			c := between("gradients", s, m.From, m.To, 0)
			c.kind, c.boundary, c.asked = pipeline.Gathering, s, true
			l.gathers[ends], lay.channels = c, append(lay.channels, c)
		}
	}
	newFetches(lay)
}

// laySums lays out what a device has of the sums of a stage, if the plan has messages for them.
func (lay *layout) laySums(t *localStage, c *chain.Chain, g *allocator) {
	x := lay.order.Sums[t.stage]
	if x == nil {
		return
	}
	n, slots, channels := len(x.Buckets), len(t.grads), &lay.replicas[t.stage]
	t.sums = &replicaSums{
		Synchronization: x, sumChannels: channels, at: slices.Index(x.Line, t.device), places: lay.bucketPlaces(t.stage), parts: x.MadeBehind(t.spec, c, lay.order.Split[t.stage]),
		made: make([]runtime.Event, slots*n), added: make([]runtime.Event, slots*n), whole: make([]runtime.Event, slots*n), left: make([]runtime.Event, slots*len(x.Line)),
	}
	if t.sums.at > 0 && len(channels.reduces) > 0 {
		channels.reduces[t.sums.at-1].layOut(g)
	}
	if x.Passes() {
		t.sums.gone = make([]runtime.Event, slots*len(x.Line))
	}
	for _, from := range x.Line {
		if l := channels.scatters[[2]int{from, t.device}]; l != nil && l.blocks[0].Bytes == 0 {
			l.layOut(g)
		}
	}
	if x.Fetches() {
		layFetches(t)
	}
	for ends, l := range channels.gathers {
		if ends[1] != t.device || x.Fetches() {
			continue
		}
		l.size(slots * n)
		for i := range l.blocks {
			if l.blocks[i] = t.gradientsOf(i/n, i%n); x.Shards {
				l.blocks[i] = t.weightsOf(i % n)
			}
		}
	}
	for i := range t.ops {
		for _, list := range t.ops[i].Tasks {
			findCloses(bucketLayers(t.spec, x), list)
		}
	}
}

// findCloses finds, for the ops of a task, the buckets whose gradients are made behind them.
func findCloses(buckets []order.Bucket, list []stageops.Op) {
	for i := range list {
		list[i].Closes = nil
	}
	for n, b := range buckets {
		for i := range slices.Backward(list) {
			if o := &list[i]; o.Gradients && o.Layer >= b.First && o.Layer <= b.Last {
				o.Closes = append(o.Closes, n)
				break
			}
		}
	}
}

// goneTo returns the event behind which gradients of a round that pass have gone to a device; nil: none pass.
func (x *replicaSums) goneTo(round, device int) runtime.Event {
	if !x.Passes() {
		return nil
	}
	return x.gone[round*len(x.Line)+slices.Index(x.Line, device)]
}

// events returns where those of the sums go.
func (x *replicaSums) events() []*runtime.Event {
	if x == nil {
		return nil
	}
	return slices.Concat(each(x.made), each(x.added), each(x.left), each(x.gone))
}

// begin forgets what has come.
func (x *replicaSums) begin() {
	if x != nil {
		clear(x.whole)
	}
}

// made says that the gradients of some buckets are made with a minibatch, if it closes them.
func (d sumCompiler) made(t *localStage, f *inFlight, buckets []int, closes bool) {
	for _, b := range buckets {
		d.compute.RecordIf(closes, t.sums.made[f.at.sum*len(t.sums.Buckets)+b])
	}
}

// adds reports whether a task of a minibatch adds to gradients that the plan has messages for.
func (s *localStage) adds(kind pipeline.Kind, f *inFlight) bool {
	return s.sums != nil && kind != pipeline.F && s.opsOf(f.minibatch).Writes(kind)
}

// closes reports whether a task of a minibatch is the last that adds to some gradients of its update.
func (d sumCompiler) closes(t *localStage, kind pipeline.Kind, f *inFlight) bool {
	return t.adds(kind, f) && d.lay.order.Closes(kind, t.stage, f.minibatch)
}

// synchronize issues a message between replicas, or lets one come.
func (d sumCompiler) synchronize(ctx context.Context, t *localStage, v order.Instance) error {
	x, n := t.sums, len(t.sums.Buckets)
	if x.Fetches() && (v.Kind == pipeline.Gathering || v.Kind == pipeline.Admitting) {
		return turnsOf(d.compiler).supply(ctx, t, v)
	}
	if x.Shards && v.Kind != pipeline.Reducing && v.Kind != pipeline.Owning {
		return d.exchange(ctx, t, v, 0) // a step has one sum of gradients
	}
	slot, fresh := t.stash.Sum(v.Minibatch / t.stash.Group)
	if fresh {
		return fmt.Errorf("BUG: %v of minibatch %d comes before its gradients", v.Instruction, v.Minibatch)
	}
	if x.Passes() {
		slot = x.Round(v.Minibatch, d.lay.order.Repeats)
	}
	i, src := slot*n+v.Bucket, t.gradientsOf(slot, v.Bucket)
	switch v.Kind {
	case pipeline.Admitting: // this device's part is in what comes: all that has used the place is behind it
		d.grant(x.gathers[[2]int{v.To, d.Number}], i)
		return nil
	case pipeline.Owning:
		switch {
		case x.Passes():
			return turnsOf(d.compiler).accumulate(ctx, t, v, slot)
		case x.Divided():
			return d.own(ctx, t, v, slot)
		}
		return d.addPartial(ctx, t, v, slot)
	case pipeline.Reducing:
		if x.Divided() {
			return d.message(ctx, x.scatters[[2]int{d.Number, v.To}], v, x.made[i], src, x.goneTo(slot, v.To))
		}
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
	left := x.left[slot*len(x.Line)+slices.Index(x.Line, v.To)]
	return d.message(ctx, x.gathers[[2]int{d.Number, v.To}], v, ready, src, left)
}

// addPartial makes the gradients of a bucket the sum of those of the replicas up to this one.
func (d sumCompiler) addPartial(ctx context.Context, t *localStage, v order.Instance, slot int) error {
	x, i := t.sums, slot*len(t.sums.Buckets)+v.Bucket
	l := x.reduces[x.at-1]
	block, err := d.take(ctx, l, x.Number(v))
	if err != nil {
		return err
	}
	sum := t.gradientsOf(slot, v.Bucket)
	add, err := d.binder.add(sum, l.blocks[block].Part(0, sum.Bytes))
	if err != nil {
		return err
	}
	if x.at == len(x.Line)-1 {
		x.whole[i] = x.added[i]
	}
	q := d.adding
	q.Wait(x.made[i])
	q.Wait(l.arrived[block])
	q.Launch(add)
	q.Record(l.freed[block])
	d.grant(l, block)
	q.Record(x.added[i])
	return nil
}

// total returns the event behind which the gradients of a bucket are the sum of those of all replicas.
func (d sumCompiler) total(ctx context.Context, t *localStage, v order.Instance, slot int) (runtime.Event, error) {
	x, i := t.sums, slot*len(t.sums.Buckets)+v.Bucket
	if x.whole[i] != nil {
		return x.whole[i], nil
	}
	from := x.Sources[order.ArrivalOf{Residue: d.lay.order.Residue(v.Minibatch), Bucket: v.Bucket, Device: d.Number}]
	l := x.gathers[[2]int{from, d.Number}]
	block, err := d.take(ctx, l, x.Number(v))
	if err != nil {
		return nil, err
	}
	x.whole[i] = l.arrived[block]
	return x.whole[i], nil
}

// collect waits for the sums of all buckets in a slot, for the update that ends with a minibatch. It also waits until all their
// sends have left.
func (d sumCompiler) collect(ctx context.Context, t *localStage, minibatch, slot int) error {
	x := t.sums
	if x.Passes() {
		slot = len(t.grads) - 1
	}
	if x.Shards {
		d.collectOwn(t, slot)
		return nil
	}
	if x.Together != nil {
		d.collectSums(t, minibatch, slot)
		return nil
	}
	for _, b := range x.Arriving(d.lay.order.Residue(minibatch)) {
		if x.places[b].Bytes == 0 {
			continue
		}
		v := order.Instance{Instruction: order.Instruction{Kind: pipeline.Update, Stage: t.stage, Bucket: b}, Minibatch: minibatch}
		whole, err := d.total(ctx, t, v, slot)
		if err != nil {
			return err
		}
		x.whole[slot*len(x.Buckets)+b] = nil
		d.compute.Wait(whole)
	}
	d.waitForLeft(t, slot)
	return nil
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
