package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// Weights that layers share (models.Parameter.Of), of plans with a flush.
//
// The owner is the stage of the layer that has the parameter: its devices keep weights, gradient and optimizer state. A reader is a stage of
// a layer that reads it. On a device with both, the reader reads the owner's weights. Every other device of the reader has a copy of them.
//
// The gradients of each stage's replicas are added up first, those of a reader apart from those of the owner. At the end of the step the
// reader's sum goes to each device of the owner, which adds it, in the order of the layers. So the gradients have the bits of accumulation on
// one device. Behind the updates the new weights go to the copies. Megatron adds the gradients of tied embeddings in the same way.

// newTies finds what stages share. Errors: ErrTied for plans that cannot add up the gradients.
func newTies(lay *layout) error {
	plan := lay.order.Plan
	for _, q := range lay.Model.Tied() {
		x := &tie{param: q, owner: stageOf(lay, q.Of.Layer), reader: stageOf(lay, q.Layer)}
		if !q.Trained || plan.IsCycle() {
			continue
		}
		if err := checkTie(lay, x); err != nil {
			return err
		}
		if x.owner == x.reader {
			continue
		}
		owners, readers := lay.order.Hosts(x.owner), lay.order.Hosts(x.reader)
		x.sums = channelsTo("gradients of shared weights", x.reader, owners, readers)
		x.renewals = channelsTo("shared weights", x.owner, readers, owners)
		for _, l := range x.channels() {
			l.bytes = q.Desc.Bytes()
		}
		for _, l := range x.renewals {
			l.asked = true
		}
		lay.ties = append(lay.ties, x)
	}
	return nil
}

// stageOf returns the stage of a layer.
func stageOf(lay *layout, layer int) int {
	return slices.IndexFunc(lay.order.Plan.Stages, func(st pipeline.Stage) bool { return st.First <= layer && layer <= st.Last })
}

// channelsTo returns the channels by which devices get what all of others have, unless they are among these.
func channelsTo(what string, stage int, to, from []int) (all []*channel) {
	for i, d := range to {
		if !slices.Contains(from, d) {
			all = append(all, between(what, stage, from[i%len(from)], d, 1))
		}
	}
	return all
}

// checkTie returns ErrTied if a plan updates the two stages at different times.
func checkTie(lay *layout, x *tie) error {
	if q := x.param; x.owner != x.reader && !lay.order.Plan.IsFlush() {
		return fmt.Errorf("%w: %s of layer %s is %s of layer %s: stages %d and %d update them at different times, as the plan has no flush: give one with a flush", ErrTied,
			q.Name, lay.Model.Layers[q.Layer-1].Name, q.Of.Name, lay.Model.Layers[q.Of.Layer-1].Name, x.owner, x.reader)
	}
	return nil
}

// layTied finds, on a device, the owners of what its stages read, and places copies of weights that other devices have.
func layTied(d *driver, g *allocator, m *Memory) {
	for _, t := range d.stages {
		for _, q := range tiedParameters(t) {
			if q.owner = d.stages[stageOf(d.lay, q.Of.Layer)]; q.owner == nil {
				start := g.end
				q.copy = g.alloc(q.Desc.Bytes())
				m.Weights += g.end - start
			}
		}
	}
}

// tiedParameters lists, in the order of the layers, what the layers of a stage have from others.
func tiedParameters(s *localStage) (all []*tiedParameter) {
	if s == nil {
		return nil
	}
	for i := range s.layers {
		for _, q := range s.layers[i].ties {
			all = append(all, s.layers[i].tied[q.Value.Offset])
		}
	}
	return all
}

// layTies places what a device receives.
func layTies(d *driver, g *allocator) {
	for _, x := range d.lay.ties {
		for _, l := range x.sums {
			if l.to == d.Number {
				l.layOut(g)
			}
		}
		for _, l := range x.renewals {
			if l.to == d.Number {
				t := d.stages[x.reader]
				l.blocks[0] = t.layers[x.param.Layer-t.spec.First].tied[x.param.Value.Offset].copy
			}
		}
	}
}

// listCopies calls add for the copies of weights of other devices.
func listCopies(s *localStage, d *driver, add func(placed)) {
	for _, q := range tiedParameters(s) {
		if q.owner == nil && q.copy.Bytes > 0 {
			role := q.Of.Role()
			add(placed{executor.Tensor{Name: q.Of.Name, Role: role, Desc: q.Desc, Layer: q.Of.Layer, Parts: q.Of.Parts}, *q.Of, []place{{d, q.copy, 0}}, nil})
		}
	}
}

// tieCompiler issues the messages and sums of weights that stages share.
type tieCompiler struct{ *compiler }

func tiesOf(d *compiler) tieCompiler { return tieCompiler{d} }

// sendTied sends the gradients of a stage of this step to the devices that add them to those of their owner.
func (d tieCompiler) sendTied(ctx context.Context, t *localStage, sum int) error {
	for _, x := range d.lay.ties {
		if x.reader != t.stage {
			continue
		}
		src := t.gradient(&t.layers[x.param.Layer-t.spec.First], sum, x.param.Grad)
		if err := d.sums().tellAll(ctx, t, outgoing(x.sums, d.Number), d.guard.steps, src); err != nil {
			return err
		}
	}
	return nil
}

// outgoing returns the channels from a device.
func outgoing(all []*channel, device int) (from []*channel) {
	for _, l := range all {
		if l.from == device {
			from = append(from, l)
		}
	}
	return from
}

// addTied adds, to the gradients of a stage in a slot, those of layers that have its parameters, in the order of the layers.
func (d tieCompiler) addTied(ctx context.Context, t *localStage, sum int) error {
	for _, q := range d.lay.Model.Tied() {
		if s := stageOf(d.lay, q.Of.Layer); s != t.stage || !q.Trained {
			continue
		}
		of := &t.layers[q.Of.Layer-t.spec.First]
		to := t.gradient(of, sum, q.Of.Grad)
		if reader := d.stages[stageOf(d.lay, q.Layer)]; reader != nil {
			slot := sum
			if reader != t {
				slot = 0 // a step has one sum of gradients
			}
			if err := d.addGradient(to, reader.gradient(&reader.layers[q.Layer-reader.spec.First], slot, q.Grad)); err != nil {
				return err
			}
			continue
		}
		l := tiedSum(d.lay, q, d.Number)
		block, from, err := d.received(ctx, l, d.guard.steps)
		if err != nil {
			return err
		}
		if err := d.addGradient(to, from.Part(0, to.Bytes)); err != nil {
			return err
		}
		d.release(l, block)
	}
	return nil
}

// addGradient adds a gradient to another one.
func (d tieCompiler) addGradient(to, from runtime.Span) error {
	add, err := d.binder.add(to, from)
	if err == nil {
		d.compute.Launch(add)
	}
	return err
}

// tiedSum returns the channel that brings the gradients of a shared parameter to a device.
func tiedSum(lay *layout, q models.Parameter, device int) *channel {
	for _, x := range lay.ties {
		if x.param.Layer != q.Layer || x.param.Value.Offset != q.Value.Offset {
			continue
		}
		if i := slices.IndexFunc(x.sums, func(l *channel) bool { return l.to == device }); i >= 0 {
			return x.sums[i]
		}
	}
	panic(fmt.Sprintf("BUG: nothing brings the gradients of %s in layer %d to device %d", q.Name, q.Layer, device))
}

// renewCopies sends new weights to the devices that have copies, and lets those of this device come. It grants the blocks of all copies
// before it sends: two devices may send to each other.
func (d tieCompiler) renewCopies(ctx context.Context) error {
	for _, x := range d.lay.ties {
		for _, l := range x.renewals {
			if l.to == d.Number {
				d.release(l, 0)
			}
		}
	}
	for _, x := range d.lay.ties {
		to := outgoing(x.renewals, d.Number)
		if len(to) == 0 {
			continue
		}
		t := d.stages[x.owner]
		src := t.value(&t.layers[x.param.Of.Layer-t.spec.First], 0, x.param.Of.Value)
		if err := d.sums().tellAll(ctx, t, to, d.guard.steps, src); err != nil {
			return err
		}
	}
	for _, x := range d.lay.ties {
		for _, l := range x.renewals {
			if l.to != d.Number {
				continue
			}
			if _, _, err := d.received(ctx, l, d.guard.steps); err != nil {
				return err
			}
		}
	}
	return nil
}
