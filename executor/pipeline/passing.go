package pipeline

import (
	"context"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// Gradients that pass through a device, and ZeRO-2 (pipeline.ZeroGradients).
//
// Every microbatch of a stage makes its gradients in a buffer, which all such stages of the device take in turn. When their parts have left,
// and the device has added up its own part of the round, the buffer is free for the next turn. The owner of a part adds up the gradients of all
// microbatches, round by round and in the order of the line, in memory of the size of its shard. By that it updates the weights.

// layGradientBuffers places those of a device; nil where it has no use for them. There are as many as the plan's times need, and no fewer than
// the order of the device's instructions does, so that none waits for one behind it.
func layGradientBuffers(lay *layout, device int, g *allocator) *gradientBuffers {
	x, bytes := &gradientBuffers{}, int64(0)
	var begin, left []int // by turn: positions of the backward, and of the last instruction that needs its gradients
	for i, t := range lay.order.Instructions[device] {
		s := lay.order.Sums[t.Stage]
		switch {
		case s == nil || !s.Passes():
		case t.Kind == pipeline.B:
			x.turns, begin, left = append(x.turns, turn{t.Stage, t.Shift}), append(begin, i), append(left, i)
			bytes = max(bytes, lay.weightBytes(t.Stage))
		case t.Kind == pipeline.Reducing || t.Kind == pipeline.Owning:
			k := slices.IndexFunc(x.turns, func(y turn) bool {
				return y.stage == t.Stage && s.Round(y.microbatch, lay.order.Repeats) == s.Round(t.Shift, lay.order.Repeats)
			})
			left[k] = i
		}
	}
	if len(x.turns) == 0 {
		return nil
	}
	times := lay.order.Work.Passing[device]
	n := max(
		pipeline.Turns(len(begin), func(i, later int) bool { return begin[later] < left[i] }),
		pipeline.Turns(len(times), func(i, later int) bool { return times[later].From < times[i].To }))
	for range n {
		x.spans = append(x.spans, g.alloc(bytes))
	}
	return x
}

// of returns the gradients of a stage, round by round of a step.
func (x *gradientBuffers) of(s *order.Synchronization, stage, step int, bytes int64) []runtime.Span {
	all := make([]runtime.Span, s.Rounds(step))
	for i, t := range x.turns {
		if t.stage == stage {
			all[s.Round(t.microbatch, step)] = x.spans[i%len(x.spans)].Part(0, bytes)
		}
	}
	return all
}

// awaitBuffer waits for what a buffer had before a task of a minibatch first writes to it.
func (d turnCompiler) awaitBuffer(t *localStage, v order.Instance) {
	if first := t.opsOf(v.Minibatch).Writes(pipeline.B); first != (v.Kind == pipeline.B) {
		return
	}
	step := d.lay.order.Repeats
	k := slices.Index(d.buffers.turns, turn{t.stage, v.Minibatch % step}) - len(d.buffers.spans)
	if k < 0 { // the last step has ended
		return
	}
	before := d.stages[d.buffers.turns[k].stage]
	x, slot := before.sums, before.sums.Round(d.buffers.turns[k].microbatch, step)
	for i, to := range x.Line {
		if x.scatters[[2]int{d.Number, to}] != nil && x.owns(to) {
			d.compute.Wait(x.gone[slot*len(x.Line)+i])
		}
	}
	for b, p := range x.places {
		if x.Owner(b) == d.Number && p.Bytes > 0 {
			d.compute.Wait(x.added[slot*len(x.Buckets)+b])
		}
	}
}

// owns reports whether a device owns a part that is not empty.
func (x *replicaSums) owns(device int) bool {
	for b, p := range x.places {
		if x.Owner(b) == device && p.Bytes > 0 {
			return true
		}
	}
	return false
}

// accumulate adds the gradients of a round to those of the rounds before, of a part that this device owns, in the order of the line.
func (d turnCompiler) accumulate(ctx context.Context, t *localStage, v order.Instance, round int) error {
	x, i, q := t.sums, round*len(t.sums.Buckets)+v.Bucket, d.adding
	mine := t.gradientsOf(round, v.Bucket)
	all := t.own.Part(t.shard.begin(x.places[v.Bucket].Offset), mine.Bytes)
	add := func(at int, from runtime.Span) error {
		if round == 0 && at == 0 {
			q.Copy(all, from)
			return nil
		}
		return d.addUp(q, all, from)
	}
	q.Wait(x.made[i])
	for at, from := range x.Line {
		if at == x.at {
			if err := add(at, mine); err != nil {
				return err
			}
			continue
		}
		part, give, err := d.partFrom(ctx, t, v, from, mine.Bytes)
		if err != nil {
			return err
		}
		if err := add(at, part); err != nil {
			return err
		}
		give()
	}
	if round == len(t.grads)-1 {
		x.whole[i] = x.added[i]
	}
	q.Record(x.added[i])
	return nil
}

// begin returns where a device keeps the state of the part that begins there in a copy of the weights.
func (h *shard) begin(offset int64) int64 {
	return h.at[slices.IndexFunc(h.places, func(p runtime.Span) bool { return p.Offset == offset })]
}
