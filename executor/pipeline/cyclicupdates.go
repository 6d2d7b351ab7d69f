package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// cyclicCompiler notes the ops of cyclic plans.
type cyclicCompiler struct{ ringCompiler }

func (d *compiler) cyclic() cyclicCompiler { return cyclicCompiler{d.ring()} }

// updateOnDevice notes the update of a layer's own parameters on the device, by gradients there.
func (d cyclicCompiler) updateOnDevice(t *localStage, layer, position int, gradients []runtime.Span) error {
	s := &t.cyclic.layers[layer-1]
	at := layerUpdate{scalars: s.scalars, workspace: t.workspace, weights: s.weights.at(position), gradients: gradients}
	if g := t.cyclic.guard; g != nil {
		at.scalars = g.scalars
	} else {
		d.bringScalars(t, layer)
	}
	if s.stateBytes > 0 {
		at.state = s.state.at(position)
	}
	return d.applyUpdate(t, layer, d.compute, &at)
}

// bringScalars notes that the scalars of a layer's update come to the device.
func (d cyclicCompiler) bringScalars(t *localStage, layer int) {
	d.fillsScalars(t, layer, d.compute)
	s := &t.cyclic.layers[layer-1]
	d.compute.Copy(s.scalars, s.hostScalars)
}

// fillsScalars lets the host write the scalars of a layer's update, which the update of the step before has read.
func (d cyclicCompiler) fillsScalars(t *localStage, layer int, q table.Queue) {
	s := &t.cyclic.layers[layer-1]
	d.host(table.Command{Work: table.FillUpdate, On: q, Stage: t.stage, Event: s.free, Pages: []runtime.Span{s.hostScalars}, Writes: true})
}

// applyUpdate notes the launches of an update.
func (d cyclicCompiler) applyUpdate(t *localStage, layer int, q table.Queue, at *layerUpdate) error {
	launches, err := d.binder.updateLayer(t, layer, at)
	if err != nil {
		return fmt.Errorf("update of layer %d: %w", layer, err)
	}
	for _, l := range launches {
		q.Launch(l)
	}
	q.Record(t.cyclic.layers[layer-1].free)
	return nil
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
			if tied = true; !q.Trained {
				continue
			}
			bytes := q.Desc.Bytes()
			whole, _ := t.cyclic.layers[layer-1].gradientOf(own, *q.Of)
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
		gradient, of := x.gradientOf(own, q)
		o := kernels.UpdateOperands{
			Elements: q.Desc.Elements(), Scalars: at.scalars, Workspace: at.workspace, Earlier: l.earlier,
			Param: x.weight(at.weights, q.Value.Offset, bytes), Grad: gradient, GradType: of,
		}
		if x.rounds(q.Value.Offset) {
			o.Param, o.Rounded = x.master(at.state, q.Value.Offset, bytes), o.Param
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
