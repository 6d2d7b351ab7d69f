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

// op notes an op. Where its microbatch is not in the run, the op does nothing, but waits and is waited for like all others.
func (d cyclicCompiler) op(ctx context.Context, v order.Instance, in bool) error {
	t := d.stages[v.Stage]
	o := &t.cyclic.ops[v.Place.Moment()]
	q := d.queueOn(o.on)
	for _, w := range o.waits {
		d.note(table.Command{Verb: table.DoWait, On: q, Event: t.cyclic.ops[w].end, Played: table.Always})
	}
	if in {
		if err := d.issueOp(ctx, t, o, q, v); err != nil {
			return err
		}
	}
	if d.lay.opt.Audit { // an op with a prime passes its turn in the first step
		d.note(table.Command{Verb: table.DoAudit, Played: table.Always})
	}
	if o.end == nil {
		return nil
	}
	d.note(table.Command{Verb: table.DoRecord, On: q, Event: o.end, Played: table.Always})
	return nil
}

// issueOp notes what an op does, and an event behind it.
func (d cyclicCompiler) issueOp(ctx context.Context, t *localStage, o *cyclicOp, q table.Queue, v order.Instance) error {
	played, ahead := table.InRun, 0
	if t.cyclic.epilogue && !o.Prime && o.copies() {
		played, ahead = table.OrBehind, d.lay.group
	}
	d.note(table.Command{Verb: table.DoBegin, Played: played, Ahead: ahead})
	d.watch.start(q)
	var err error
	switch {
	case o.op != nil:
		err = d.activation(ctx, t, o, q, v)
	case o.Kind == schedule.Update || o.Kind == schedule.HostUpdate:
		err = d.updateLayer(t, o, q, v.Place.Moment())
	default:
		dst, src := t.cyclic.copied(o, v.Place.Moment())
		d.note(table.Command{Verb: table.DoCopy, On: q, To: d.Device, Dst: dst, Src: src, Played: played, Ahead: ahead})
	}
	if err != nil {
		return err
	}
	d.watch.end(q)
	d.note(table.Command{Verb: table.DoEnd, On: q, Played: played, Ahead: ahead})
	return nil
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
		copyActivation(q, o.op, &t.slabs[f.slab], &f.at)
	} else {
		t.cyclic.see(t, o, v.Place.Moment(), &f.at)
		if err := d.onWideGradients(t, o, &f.at, func() error { return d.taskCompiler.op(ctx, t, o.op, f) }); err != nil {
			return err
		}
	}
	if err := d.behindBackward(t, o, v, f.at.scalars); err != nil {
		return err
	}
	if o.loss {
		d.report(t, f)
	}
	if o.ends {
		d.leave(t, f)
	}
	return nil
}

// onWideGradients notes an op. Gradients that are kept in bfloat16 it adds to in float32: these are widened before it, and rounded behind it.
func (d cyclicCompiler) onWideGradients(t *localStage, o *cyclicOp, at *frame, op func() error) error {
	x := &t.cyclic.layers[o.Layer-1]
	if !o.op.Gradients || len(x.offsets.wide) == 0 {
		return op()
	}
	if o.adds {
		if err := d.castGradients(t, o.Layer, at, kernels.Float32); err != nil {
			return err
		}
	}
	if err := op(); err != nil {
		return err
	}
	return d.castGradients(t, o.Layer, at, kernels.BFloat16)
}

// castGradients notes the copies of a layer's gradients to a type, from the other one.
func (d cyclicCompiler) castGradients(t *localStage, layer int, at *frame, to kernels.DType) error {
	x := &t.cyclic.layers[layer-1]
	for _, q := range t.layers[layer-1].params {
		offset, wide := x.offsets.wide[q.Grad.Offset]
		if !wide || !q.Trained {
			continue
		}
		kept, _ := x.gradientOf(at.gradients, q)
		from, in, out := q.Desc, at.wide.Part(offset, q.Desc.Bytes()), kept
		if to == kernels.Float32 {
			from, in, out = q.Desc.As(kernels.BFloat16), kept, in
		}
		cast, err := d.binder.call(kernels.Call{Op: kernels.Cast{To: to}, In: []kernels.Desc{from}}, kernels.Operands{X: []runtime.Span{in}, Y: out, Scalars: at.scalars})
		if err != nil {
			return fmt.Errorf("gradient of %s: %w", q.Name, err)
		}
		d.compute.Launch(cast)
	}
	return nil
}

// behindBackward records the work after the last backward of a layer. That is the guard's work, or else the update of the own parameters of
// a layer that has others of another layer, as these never move.
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
	q.Record(o.end)
	d.compute.Wait(o.end)
	if err := d.upload(t, sb, v); err != nil {
		return err
	}
	d.compute.Record(o.end)
	q.Wait(o.end)
	return nil
}

// see lets a frame have the weights and the gradient of the op at a position.
func (c *cyclicStage) see(t *localStage, o *cyclicOp, position int, at *frame) {
	s := &c.layers[o.Layer-1]
	at.weights, at.tied, at.gradients, at.wide, at.tiedGradients, at.add = runtime.Span{}, runtime.Span{}, runtime.Span{}, o.wide, runtime.Span{}, o.adds
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
	} else {
		d.fillsScalars(t, o.Layer, q)
	}
	return d.applyUpdate(t, o.Layer, q, &at)
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
