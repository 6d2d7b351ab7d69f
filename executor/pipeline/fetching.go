package pipeline

import (
	"cmp"
	"context"
	"fmt"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// Weights that come for turns, and ZeRO-3 (pipeline.ZeroWeights).
//
// A device keeps its parts of the weights of a stage, and updates them at the end of a step. A turn is tasks of one stage that follow each other.
// Before it the other parts come from their owners into a buffer, and the device copies its own there. Two buffers take turns: weights of a turn
// come while the turn before runs. No update waits for weights that leave: it waits for gradients of all tasks that need these weights.

// layWeightBuffers places those of a device; nil where it has no use for them.
func layWeightBuffers(lay *layout, device int, g *allocator) *weightBuffers {
	x, bytes, turn, before := &weightBuffers{turns: map[order.TaskKey]int{}, first: map[order.TaskKey]bool{}}, int64(0), none, none
	for _, t := range lay.order.Instructions[device] {
		if !lay.order.Sums[t.Stage].Fetches() || t.Kind != pipeline.F && t.Kind != pipeline.B {
			continue
		}
		k := order.TaskKey{Kind: t.Kind, Stage: t.Stage, Residue: t.Shift}
		if t.Stage != before {
			turn, before, x.first[k] = turn+1, t.Stage, true
		}
		x.turns[k], bytes = turn, max(bytes, lay.weightBytes(t.Stage))
	}
	if turn == none {
		return nil
	}
	for range min(turn+1, pipeline.WeightBuffers) {
		x.spans = append(x.spans, g.alloc(bytes))
	}
	return x
}

// of returns where the weights of a stage come, buffer by buffer.
func (x *weightBuffers) of(bytes int64) (all []runtime.Span) {
	for _, p := range x.spans {
		all = append(all, p.Part(0, bytes))
	}
	return all
}

// newFetches makes the channels by which the weights of a stage come. A block is that of a stage in one of the buffers.
func newFetches(lay *layout) {
	lay.fetched = map[[2]int]*channel{}
	n := 0
	for s, x := range lay.order.Sums {
		if x == nil || !x.Fetches() {
			continue
		}
		lay.replicas[s].gathers, lay.replicas[s].block = lay.fetched, pipeline.WeightBuffers*n
		n++
		for _, m := range lay.order.Plan.Synchronization {
			if ends := [2]int{m.From, m.To}; m.Stage == s && m.Kind == pipeline.Gather && lay.fetched[ends] == nil {
				c := between("weights", s, m.From, m.To, 0)
				c.kind, c.boundary, c.asked = pipeline.Gathering, s, true
				lay.fetched[ends], lay.channels = c, append(lay.channels, c)
			}
		}
	}
	for _, c := range lay.fetched {
		c.size(pipeline.WeightBuffers * n)
	}
}

// layFetches places the blocks of weights that come to a stage.
func layFetches(t *localStage) {
	for b, p := range t.sums.places {
		l := t.sums.gathers[[2]int{t.sums.Owner(b), t.device}]
		for k := range t.weights {
			if p = within(p, t.weights[k].Bytes); l != nil {
				l.blocks[t.sums.block+k] = t.weights[k].Part(p.Offset, p.Bytes)
			}
		}
	}
}

// awaitWeights waits for the weights of a turn before its first task, and finds the buffer that tasks of the turn read.
func (d turnCompiler) awaitWeights(ctx context.Context, t *localStage, v order.Instance, at *frame) error {
	if !t.fetches || v.Kind == pipeline.W {
		return nil
	}
	k := order.TaskKey{Kind: v.Kind, Stage: t.stage, Residue: d.lay.order.Residue(v.Minibatch)}
	at.slot = d.weights.turns[k] % len(d.weights.spans)
	if !d.weights.first[k] {
		return nil
	}
	x := t.sums
	for b, p := range x.places {
		p = within(p, t.weights[at.slot].Bytes)
		if p.Bytes == 0 {
			continue
		}
		owner := x.Owner(b)
		if owner == d.Number {
			d.compute.Copy(t.weights[at.slot].Part(p.Offset, p.Bytes), t.kept.Part(t.shard.begin(p.Offset), p.Bytes))
			continue
		}
		v.Before, v.Bucket = v.Kind, b
		l := x.gathers[[2]int{owner, d.Number}]
		block, err := d.take(ctx, l, x.Number(v))
		if err != nil {
			return err
		}
		if block != x.block+at.slot {
			return fmt.Errorf("BUG: weights of %v come into block %d, not %d", v.Instruction, block, x.block+at.slot)
		}
		d.compute.Wait(l.arrived[block])
	}
	return nil
}

// supply lets the weights of a turn come, or sends a part of them.
func (d turnCompiler) supply(ctx context.Context, t *localStage, v order.Instance) error {
	x := t.sums
	if v.Kind == pipeline.Admitting {
		k := order.TaskKey{Kind: v.Before, Stage: t.stage, Residue: d.lay.order.Residue(v.Minibatch)}
		d.release(x.gathers[[2]int{v.To, d.Number}], x.block+d.weights.turns[k]%len(d.weights.spans))
		return nil
	}
	p := within(x.places[v.Bucket], t.weights[0].Bytes)
	part := t.kept.Part(t.shard.begin(p.Offset), p.Bytes)
	return d.message(ctx, x.gathers[[2]int{d.Number, v.To}], v, t.renewed, part, nil)
}

// gather brings the weights of a stage that come for turns, before it works on a batch. All processes have it together, in which the stage's
// devices are.
func gather(e *Executor, d *driver, t *localStage) error {
	if !t.fetches {
		return nil
	}
	world := e.opt.World
	if world.has(d.Number) { // what read the buffer before
		if err := d.compute.S.Synchronize(); err != nil {
			return err
		}
	}
	for b, p := range t.sums.places {
		if p = within(p, t.weights[0].Bytes); p.Bytes == 0 {
			continue
		}
		o, to := d.lay.driver(t.sums.Owner(b)), t.weights[0].Part(p.Offset, p.Bytes)
		from := o.stages[t.stage].kept.Part(o.stages[t.stage].shard.begin(p.Offset), p.Bytes)
		var err error
		switch {
		case world.parts(o.Number, d.Number):
			err = moveTogether(e, d, to, o, from)
		case !world.has(d.Number):
		case o == d:
			err = d.compute.S.Copy(to, from)
		default:
			link := o.links[d.Number].S
			err = cmp.Or(link.CopyPeer(d.Dev, to, from), link.Synchronize())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveTogether copies a span of a device to that of one in another process.
func moveTogether(e *Executor, d *driver, to runtime.Span, o *driver, from runtime.Span) error {
	chunk := make([]byte, min(executor.ChunkBytes, from.Bytes))
	for at := int64(0); at < from.Bytes; at += executor.ChunkBytes {
		n := min(executor.ChunkBytes, from.Bytes-at)
		if err := e.readTogether(o, from.Part(at, n), chunk[:n]); err != nil {
			return err
		}
		if e.opt.World.has(d.Number) {
			if err := d.write(to.Part(at, n), chunk[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}
