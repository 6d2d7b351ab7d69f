package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// Parts of the gradients of a stage's replicas, of a plan with a flush, and ZeRO-1 (pipeline.ZeroShards).
//
// Every part of a bucket is a bucket of its own here, with an owner. Its gradients come to the owner from all other replicas. The owner adds
// them up in the order of the line: sums have the bits of undivided ones. Without ZeRO-1 the sum then goes to the other replicas. With it, parts
// begin where a partial sum of the norm does, so that owners measure their own, and all devices put the same partial sums together. At the end
// of the step each owner updates its parts. Then the new weights go to the other replicas, and the step is over when all have come.

// shardOf returns the part of a stage's optimizer state that a device keeps; nil: all.
func (lay *layout) shardOf(s, device int) *shard {
	x := lay.order.Sums[s]
	if x == nil || !x.Shards {
		return nil
	}
	h := &shard{}
	weights := lay.weightBytes(s)
	for b, p := range lay.bucketPlaces(s) {
		if p = within(p, weights); x.Owner(b) == device && p.Bytes > 0 {
			h.places = append(h.places, p)
		}
	}
	slices.SortFunc(h.places, func(a, b runtime.Span) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, p := range h.places {
		h.at = append(h.at, h.bytes)
		h.bytes += p.Bytes
	}
	return h
}

// weightBytes returns the bytes of a copy of a stage's weights.
func (lay *layout) weightBytes(s int) (bytes int64) {
	for _, p := range lay.Layers[lay.order.Plan.Stages[s].First-1 : lay.order.Plan.Stages[s].Last] {
		bytes += kernels.Align(p.GradBytes)
	}
	return bytes
}

// within returns the part of a place, which begins there, that lies in the first bytes.
func within(p runtime.Span, bytes int64) runtime.Span {
	p.Bytes = max(0, min(p.Bytes, bytes-p.Offset))
	return p
}

// cut returns the part of a bucket of a stage: it begins where a partial sum of the norm of some gradient does, nearest to equal parts.
func (lay *layout) cut(s int, b order.Bucket, whole runtime.Span, begins []int64) runtime.Span {
	if b.Part == 0 {
		return whole
	}
	st, r := lay.order.Plan.Stages[s], int64(len(lay.order.Sums[s].Line))
	var at []int64
	for l := b.First; l <= b.Last; l++ {
		for _, q := range lay.Model.Layers[l-1].Params() {
			for behind := int64(0); q.Trained && behind < q.Desc.Bytes(); behind += guardBytes {
				at = append(at, begins[l-st.First]+q.Grad.Offset+behind)
			}
		}
	}
	slices.Sort(at)
	nearest := func(i int64) int64 {
		if i == 0 {
			return whole.Offset
		}
		best, target := whole.End(), whole.Offset+whole.Bytes*i/r
		for _, x := range at {
			if i < r && abs(x-target) < abs(best-target) {
				best = x
			}
		}
		return best
	}
	from, to := nearest(int64(b.Part-1)), nearest(int64(b.Part))
	return runtime.Span{Offset: from, Bytes: to - from}
}

// guardBytes is how many bytes of gradients one partial sum of the norm covers.
const guardBytes = kernels.GuardChunk * 4

func abs(x int64) int64 { return max(x, -x) }

// checkShards refuses, with ErrPlan, what divided states do not go with.
func (lay *layout) checkShards() error {
	if lay.order.Plan.Zero == pipeline.ZeroNothing {
		return nil
	}
	for s, x := range lay.order.Sums {
		if x == nil {
			continue
		}
		if x.Passes() && lay.laterBytes(s) > 0 {
			return fmt.Errorf("%w: with \"zero\" of %d no device has a sum of all gradients of stage %d, with which statistics of its BatchNorm come: give --zero 1", order.ErrPlan, lay.order.Plan.Zero, s)
		}
		_, muon := lay.Optimizer.(kernels.Muon)
		switch apart := slices.ContainsFunc(x.Line, func(d int) bool { return lay.opt.World.parts(d, x.Line[0]) }); {
		case muon:
			return fmt.Errorf("%w: muon updates a matrix as a whole, and with \"zero\" of %d replicas of stage %d have parts of it: leave \"zero\" out, or take adamw", order.ErrPlan, lay.order.Plan.Zero, s)
		case apart && lay.opt.Save != nil:
			return fmt.Errorf("%w: with \"zero\" of %d the optimizer's state of stage %d lies on devices %v of different processes, and one process saves a stage: leave --out or \"zero\" out", order.ErrPlan, lay.order.Plan.Zero, s, x.Line)
		}
	}
	return nil
}

// dropEmpty leaves out what would be done for parts that nothing is left for, where tensors are few and small.
func (lay *layout) dropEmpty() {
	for s, x := range lay.order.Sums {
		if x == nil || !x.Divided() {
			continue
		}
		places := lay.bucketPlaces(s)
		for d, list := range lay.order.Instructions {
			lay.order.Instructions[d] = slices.DeleteFunc(list, func(t order.Instruction) bool {
				return t.Stage == s && t.Synchronized() && t.Kind != pipeline.Completing && places[t.Bucket].Bytes == 0
			})
		}
	}
}

// newScatters makes the channels by which gradients go to the owners of parts.
func (lay *layout) newScatters(s int, places []runtime.Span) {
	x, l := lay.order.Sums[s], &lay.replicas[s]
	if l.scatters = map[[2]int]*channel{}; x.Passes() {
		l.scatters = lay.scatters
	}
	for _, m := range lay.order.Plan.Synchronization {
		ends := [2]int{m.From, m.To}
		if m.Stage != s || m.Kind != pipeline.Reduce {
			continue
		}
		c := l.scatters[ends]
		if c == nil {
			c = between("partial gradients", s, m.From, m.To, lay.order.Unowned(s, m.From, m.To))
			c.kind, c.boundary = pipeline.Reducing, s
			l.scatters[ends], lay.channels = c, append(lay.channels, c)
		}
		for b, p := range places {
			if x.Owner(b) == m.To {
				c.bytes = max(c.bytes, p.Bytes)
			}
		}
	}
}

// own adds up the gradients of a part that this device owns, in the order of the line. The sum of the devices before it grows in the
// block of the first of them.
func (d sumCompiler) own(ctx context.Context, t *localStage, v order.Instance, slot int) error {
	x, i, q := t.sums, slot*len(t.sums.Buckets)+v.Bucket, d.adding
	mine := t.gradientsOf(slot, v.Bucket)
	q.Wait(x.made[i])
	sum := mine
	var first func() // gives the block of the first one back
	for at, from := range x.Line {
		if at == x.at {
			if at > 0 {
				if err := d.addUp(q, mine, sum); err != nil {
					return err
				}
				first()
			}
			sum = mine
			continue
		}
		part, give, err := d.partFrom(ctx, t, v, from, mine.Bytes)
		if err != nil {
			return err
		}
		if at == 0 {
			sum, first = part, give
			continue
		}
		if err := d.addUp(q, sum, part); err != nil {
			return err
		}
		give()
	}
	x.whole[i] = x.added[i]
	q.Record(x.added[i])
	return nil
}

// partFrom waits for the part of another device, of so many bytes, and returns what gives its block back.
func (d sumCompiler) partFrom(ctx context.Context, t *localStage, v order.Instance, from int, bytes int64) (part runtime.Span, give func(), err error) {
	l := t.sums.scatters[[2]int{from, d.Number}]
	block, err := d.take(ctx, l, t.sums.Number(v))
	if err != nil {
		return part, nil, err
	}
	d.adding.Wait(l.arrived[block])
	return l.blocks[block].Part(0, bytes), func() {
		d.adding.Record(l.freed[block])
		d.grant(l, block)
	}, nil
}

// addUp adds gradients to others.
func (d sumCompiler) addUp(q table.Queue, to, from runtime.Span) error {
	add, err := d.binder.add(to, from)
	if err != nil {
		return err
	}
	q.Launch(add)
	return nil
}

// exchange issues what belongs to a message of a part that its owner updates.
func (d sumCompiler) exchange(ctx context.Context, t *localStage, v order.Instance, slot int) error {
	x, i := t.sums, slot*len(t.sums.Buckets)+v.Bucket
	switch v.Kind {
	case pipeline.Completing:
		return d.complete(ctx, t, v, slot)
	case pipeline.Admitting:
		d.release(x.gathers[[2]int{v.To, d.Number}], i)
		return nil
	}
	ready, err := d.renewed(ctx, t, v, i)
	if err != nil {
		return err
	}
	left := x.left[slot*len(x.Line)+slices.Index(x.Line, v.To)]
	return d.message(ctx, x.gathers[[2]int{d.Number, v.To}], v, ready, t.weightsOf(v.Bucket), left)
}

// weightsOf returns the weights of a bucket.
func (s *localStage) weightsOf(bucket int) runtime.Span {
	p := within(s.sums.places[bucket], s.weights[0].Bytes)
	return s.weights[0].Part(p.Offset, p.Bytes)
}

// renewed returns the event behind which the new weights of a part are here.
func (d sumCompiler) renewed(ctx context.Context, t *localStage, v order.Instance, i int) (runtime.Event, error) {
	x := t.sums
	if x.Owner(v.Bucket) == d.Number {
		d.compute.Record(t.summed)
		return t.summed, nil
	}
	if x.whole[i] != nil {
		return x.whole[i], nil
	}
	l := x.gathers[[2]int{x.Sources[order.ArrivalOf{Residue: d.lay.order.Residue(v.Minibatch), Bucket: v.Bucket, Device: d.Number}], d.Number}]
	block, err := d.take(ctx, l, x.Number(v))
	if err != nil {
		return nil, err
	}
	x.whole[i] = l.arrived[block]
	return x.whole[i], nil
}

// collectOwn waits for the sums of the parts that this device owns.
func (d sumCompiler) collectOwn(t *localStage, slot int) {
	x := t.sums
	for b, p := range x.places {
		i := slot*len(x.Buckets) + b
		if x.Owner(b) != d.Number || p.Bytes == 0 {
			continue
		}
		d.compute.Wait(x.whole[i])
		x.whole[i] = nil
	}
}

// complete waits for the new weights of all parts, and until those that were sent have left. Then the rows of statistics have been sent,
// too, and the running ones move.
func (d sumCompiler) complete(ctx context.Context, t *localStage, v order.Instance, slot int) error {
	x := t.sums
	for b, p := range x.places {
		if x.Owner(b) == d.Number || p.Bytes == 0 {
			continue
		}
		of := v
		of.Bucket = b
		here, err := d.renewed(ctx, t, of, slot*len(x.Buckets)+b)
		if err != nil {
			return err
		}
		d.compute.Wait(here)
		x.whole[slot*len(x.Buckets)+b] = nil
	}
	d.waitForLeft(t, slot)
	return d.moveStatistics(ctx, t)
}

// waitForLeft waits until what was gathered has left.
func (d sumCompiler) waitForLeft(t *localStage, slot int) {
	x := t.sums
	for i, to := range x.Line {
		if x.gathers[[2]int{d.Number, to}] == nil {
			continue
		}
		d.compute.Wait(x.left[slot*len(x.Line)+i])
	}
}

// bucketPlaces returns where the buckets of a stage lie in a sum of its gradients. The last one with gradients takes the statistics behind
// them, too.
func (lay *layout) bucketPlaces(s int) (places []runtime.Span) {
	st, at := lay.order.Plan.Stages[s], int64(0)
	var begins []int64
	for _, p := range lay.Layers[st.First-1 : st.Last] {
		begins = append(begins, at)
		at += kernels.Align(p.GradBytes)
	}
	begins = append(begins, at)
	for _, b := range bucketLayers(st, lay.order.Sums[s]) {
		from, to := begins[b.First-st.First], begins[b.Last+1-st.First]
		places = append(places, lay.cut(s, b, runtime.Span{Offset: from, Bytes: to - from}, begins))
	}
	places[lastPlace(places)].Bytes += lay.laterBytes(s)
	return places
}

// bucketLayers returns the buckets of a stage with the layers that no bucket has. A plan counts no gradients for them: of a small parameter beside
// weights that are another layer's. They go with the next bucket below, whose gradients are made later, or with the lowest one.
func bucketLayers(st pipeline.Stage, x *order.Synchronization) (all []order.Bucket) {
	for _, b := range x.Buckets {
		whole := order.Bucket{First: st.First, Last: st.Last, Part: b.Part}
		for _, other := range x.Buckets {
			if other.First > b.Last {
				whole.Last = min(whole.Last, other.First-1)
			}
			if other.First < b.First {
				whole.First = b.First
			}
		}
		all = append(all, whole)
	}
	return all
}

// lastPlace returns which of some places ends last, and is not empty.
func lastPlace(places []runtime.Span) (last int) {
	for i, p := range places {
		if p.Bytes > 0 && p.End() >= places[last].End() {
			last = i
		}
	}
	return last
}
