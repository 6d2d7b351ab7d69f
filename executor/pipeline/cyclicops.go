package pipeline

import (
	"context"
	"fmt"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// cyclicCompiler notes the ops of cyclic plans.
type cyclicCompiler struct{ ringCompiler }

func (d *compiler) cyclic() cyclicCompiler { return cyclicCompiler{d.ring()} }

// op notes an op. Where its microbatch is not in the run, the op does nothing, but waits and is waited for like all others.
func (d cyclicCompiler) op(ctx context.Context, v order.Instance, in bool) error {
	t := d.stages[v.Stage]
	o := &t.cyclic.ops[v.Place.Moment()]
	q := d.queueOn(o.on)
	for _, w := range o.waits {
		if err := d.note(table.Command{Verb: table.DoWait, On: q, Event: t.cyclic.ops[w].end, Played: table.Always}); err != nil {
			return err
		}
	}
	if in {
		if err := d.issueOp(ctx, t, o, q, v); err != nil {
			return err
		}
	}
	if d.lay.opt.Audit { // an op with a prime passes its turn in the first step
		_ = d.note(table.Command{Verb: table.DoAudit, Played: table.Always})
	}
	if o.end == nil {
		return nil
	}
	return d.note(table.Command{Verb: table.DoRecord, On: q, Event: o.end, Played: table.Always})
}

// issueOp notes what an op does, and an event behind it.
func (d cyclicCompiler) issueOp(ctx context.Context, t *localStage, o *cyclicOp, q table.Queue, v order.Instance) error {
	played, ahead := table.InRun, 0
	if t.cyclic.epilogue && !o.Prime && o.copies() {
		played, ahead = table.OrBehind, d.lay.group
	}
	_ = d.note(table.Command{Verb: table.DoBegin, Played: played, Ahead: ahead})
	if err := d.watch.start(q); err != nil {
		return err
	}
	var err error
	switch {
	case o.op != nil:
		err = d.activation(ctx, t, o, q, v)
	case o.Kind == schedule.Update || o.Kind == schedule.HostUpdate:
		err = d.updateLayer(t, o, q, v.Place.Moment())
	default:
		dst, src := t.cyclic.copied(o, v.Place.Moment())
		err = d.note(table.Command{Verb: table.DoCopy, On: q, To: d.Device, Dst: dst, Src: src, Played: played, Ahead: ahead})
	}
	if err != nil {
		return err
	}
	if err := d.watch.end(q); err != nil {
		return err
	}
	return d.note(table.Command{Verb: table.DoEnd, On: q, Played: played, Ahead: ahead})
}

// activation notes an op of a microbatch. With the first one its batch comes, behind the first loss that goes to the host.
func (d cyclicCompiler) activation(ctx context.Context, t *localStage, o *cyclicOp, q table.Queue, v order.Instance) error {
	if o.begins {
		f := d.enter(t, v.Minibatch)
		sb := &t.slabs[f.slab]
		if err := d.bring(t, o, q, sb, v); err != nil {
			return err
		}
		f.entry = sb.images[0]
		f.at = frame{input: f.entry, scalars: sb.scalars, labels: sb.labels, row: t.deferred.row(v.Minibatch)}
	}
	f := t.find(v.Minibatch)
	if o.op.Program == nil {
		if err := copyActivation(q, o.op, &t.slabs[f.slab], &f.at); err != nil {
			return err
		}
	} else {
		t.cyclic.see(t, o, v.Place.Moment(), &f.at)
		if err := d.taskCompiler.op(ctx, t, o.op, f); err != nil {
			return err
		}
	}
	if err := d.behindBackward(t, o, v, f.at.scalars); err != nil {
		return err
	}
	if o.loss {
		if err := d.report(t, f); err != nil {
			return err
		}
	}
	if o.ends {
		d.leave(t, f)
	}
	return nil
}

// behindBackward notes what follows the last backward of a layer: what the guard does, or else the update of the own parameters of a layer that
// has others of another layer, as these never move.
func (d cyclicCompiler) behindBackward(t *localStage, o *cyclicOp, v order.Instance, scalars runtime.Span) error {
	s := &t.cyclic.layers[o.Layer-1]
	switch {
	case !o.updatesOwn:
		return nil
	case t.cyclic.guard != nil:
		return d.guardBehind(t, v.Place.Moment(), scalars)
	case s.ties && t.layers[o.Layer-1].own > 0:
		return d.updateOnDevice(t, o.Layer, v.Place.Moment(), []runtime.Span{s.ownGradient})
	}
	return nil
}

// bring notes the copies of a batch, on compute. Where the microbatch begins with an op of another stream, the copies are behind what that
// has waited for, and the op behind the copies.
func (d cyclicCompiler) bring(t *localStage, o *cyclicOp, q table.Queue, sb *slab, v order.Instance) error {
	if o.on == onCompute {
		return d.upload(t, sb, v)
	}
	return inOrder(
		func() error { return q.Record(o.end) },
		func() error { return d.compute.Wait(o.end) },
		func() error { return d.upload(t, sb, v) },
		func() error { return d.compute.Record(o.end) },
		func() error { return q.Wait(o.end) },
	)
}

// see lets a frame have the weights and the gradient of the op at a position.
func (c *cyclicStage) see(t *localStage, o *cyclicOp, position int, at *frame) {
	s := &c.layers[o.Layer-1]
	at.weights, at.tied, at.gradients, at.tiedGradients, at.add = runtime.Span{}, runtime.Span{}, runtime.Span{}, runtime.Span{}, o.adds
	if s.weightBytes > 0 {
		at.weights = s.weights.at(position)
	}
	for _, q := range t.layers[o.Layer-1].ties {
		at.tied = c.layers[q.Of.Layer-1].weights.at(position)
	}
	switch {
	case !o.op.Gradients:
	case s.ties:
		at.gradients, at.tiedGradients = s.ownGradient, s.gradient.at(position)
	default:
		at.gradients = s.gradient.at(position)
	}
}

// updateLayer notes the update of a layer, on the device or on the host.
func (d cyclicCompiler) updateLayer(t *localStage, o *cyclicOp, q table.Queue, position int) error {
	c := t.cyclic
	if o.Kind == schedule.Update {
		return d.updateOnDevice(t, o.Layer, position, c.gradientsAt(t, position))
	}
	s := &c.layers[o.Layer-1]
	at := layerUpdate{true, s.hostScalars, c.workspace, s.weightHome, s.stateHome, c.gradientsAt(t, position)}
	if c.guard != nil {
		at.scalars = c.guard.verdict
	} else if err := d.fillsScalars(t, o.Layer, q); err != nil {
		return err
	}
	return d.applyUpdate(t, o.Layer, q, &at)
}

// updateOnDevice notes the update of a layer's own parameters on the device, by gradients there.
func (d cyclicCompiler) updateOnDevice(t *localStage, layer, position int, gradients []runtime.Span) error {
	s := &t.cyclic.layers[layer-1]
	at := layerUpdate{scalars: s.scalars, workspace: t.workspace, weights: s.weights.at(position), gradients: gradients}
	if g := t.cyclic.guard; g != nil {
		at.scalars = g.scalars
	} else if err := d.bringScalars(t, layer); err != nil {
		return err
	}
	if s.stateBytes > 0 {
		at.state = s.state.at(position)
	}
	return d.applyUpdate(t, layer, d.compute, &at)
}

// bringScalars notes that the scalars of a layer's update come to the device.
func (d cyclicCompiler) bringScalars(t *localStage, layer int) error {
	if err := d.fillsScalars(t, layer, d.compute); err != nil {
		return err
	}
	s := &t.cyclic.layers[layer-1]
	return d.compute.Copy(s.scalars, s.hostScalars)
}

// fillsScalars lets the host write the scalars of a layer's update, which the update of the step before has read.
func (d cyclicCompiler) fillsScalars(t *localStage, layer int, q table.Queue) error {
	s := &t.cyclic.layers[layer-1]
	return d.host(table.Command{Work: table.FillUpdate, On: q, Stage: t.stage, Event: s.free, Pages: []runtime.Span{s.hostScalars}, Writes: true})
}

// applyUpdate notes the launches of an update.
func (d cyclicCompiler) applyUpdate(t *localStage, layer int, q table.Queue, at *layerUpdate) error {
	launches, err := d.binder.updateLayer(t, layer, at)
	if err != nil {
		return fmt.Errorf("update of layer %d: %w", layer, err)
	}
	for _, l := range launches {
		if err := q.Launch(l); err != nil {
			return err
		}
	}
	return q.Record(t.cyclic.layers[layer-1].free)
}

// layerUpdate is where an update of a layer works.
type layerUpdate struct {
	onHost                             bool
	scalars, workspace, weights, state runtime.Span
	gradients                          []runtime.Span // the owner's first, behind it those of layers that have its parameters
}

// sumUsers returns the launches that add the gradients of layers with a layer's parameters to its own.
func (b *binder) sumUsers(t *localStage, layer int, at *layerUpdate) (list []table.Prepared, err error) {
	own, next := at.gradients[0], 1
	for i := range t.layers {
		tied := false
		for _, q := range t.layers[i].ties {
			if q.Of.Layer != layer {
				continue
			}
			tied = true
			bytes := q.Desc.Bytes()
			whole := own.Part(q.Of.Grad.Offset, bytes)
			sum, err := b.addTo(whole, at.gradients[next].Part(q.Grad.Offset-t.layers[i].own, bytes), q.Desc, at, t.cyclic.sumScalars)
			if err != nil {
				return nil, err
			}
			list = append(list, sum)
		}
		if tied {
			next++
		}
	}
	return list, nil
}

// updateLayer returns the launches that update a layer, whose gradients a guard has added, or else the first of them do.
func (b *binder) updateLayer(t *localStage, layer int, at *layerUpdate) (list []table.Prepared, err error) {
	if t.cyclic.guard == nil {
		if list, err = b.sumUsers(t, layer, at); err != nil {
			return nil, err
		}
	}
	l, x, own := &t.layers[layer-1], &t.cyclic.layers[layer-1], at.gradients[0]
	var all []kernels.UpdateOperands
	for _, q := range l.params {
		if !q.Trained {
			continue
		}
		bytes := q.Desc.Bytes()
		o := kernels.UpdateOperands{
			Elements: q.Desc.Elements(), Scalars: at.scalars, Workspace: at.workspace, Earlier: l.earlier,
			Param: x.weight(at.weights, q.Grad.Offset, bytes), Grad: own.Part(q.Grad.Offset, bytes),
		}
		if x.rounds(q.Grad.Offset) {
			o.Param, o.Rounded = x.master(at.state, q.Grad.Offset, bytes), o.Param
		}
		for k := range kernels.StatesOf(b.optimizer, q.Matrix) {
			o.States = append(o.States, at.state.Part(x.stateAt[k]+l.stateAt[k][q.Grad.Offset], bytes))
		}
		all = append(all, q.Updates(b.optimizer, o)...)
	}
	if len(all) == 0 {
		return list, nil
	}
	by := kernels.Updater(b.lib)
	if at.onHost {
		by = b.onHost
	}
	update, err := b.changeBy(by, b.optimizer, all...)
	return append(list, update), err
}

// addTo prepares a sum of gradients. On the host it is an update of plain gradient descent: whole - (-1)·part, to the bit.
func (b *binder) addTo(whole, part runtime.Span, of kernels.Desc, at *layerUpdate, scalars runtime.Span) (table.Prepared, error) {
	if at.onHost {
		return b.changeBy(b.onHost, kernels.SGD{}, kernels.UpdateOperands{Elements: of.Elements(), Param: whole, Grad: part, Scalars: scalars})
	}
	o := kernels.Operands{X: []runtime.Span{whole, part}, Y: whole, Scalars: at.scalars}
	return b.call(kernels.Call{Op: kernels.Add{}, In: []kernels.Desc{of, of}, Train: true}, o)
}

// fillScalars puts the scalars of updates into page-locked memory, when those that are there have been read.
func (d *driver) fillScalars(c *table.Command, minibatch int) error {
	if err := c.Event.Synchronize(); err != nil {
		return err
	}
	b, err := d.Dev.HostBytes(c.Pages[0])
	if err != nil {
		return err
	}
	m := d.done + minibatch
	putScalars(b, d.lay.scalars(m), d.updateScalars(d.stages[c.Stage], m), d.lay.order.Plan)
	return nil
}
