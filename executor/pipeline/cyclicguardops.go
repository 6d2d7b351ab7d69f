package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// guardBehind notes what the guard does behind a backward.
func (d cyclicCompiler) guardBehind(t *localStage, position int, scalars runtime.Span) error {
	c := t.cyclic
	for _, l := range c.guard.measures[position] {
		if err := d.measureLayer(t, l, position, scalars); err != nil {
			return fmt.Errorf("norm of layer %d: %w", l, err)
		}
	}
	if position != c.guard.judges {
		return nil
	}
	if err := d.judgeStep(t); err != nil {
		return err
	}
	for i := range c.layers {
		if s := &c.layers[i]; s.ties && t.layers[i].own > 0 {
			if err := d.updateOnDevice(t, i+1, position, []runtime.Span{s.ownGradient}); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureLayer notes the sum of the gradients of a layer's parameters, where other layers have them, too, and their partial sums.
func (d cyclicCompiler) measureLayer(t *localStage, layer, position int, scalars runtime.Span) error {
	g := t.cyclic.guard
	all, x := t.cyclic.gradientsOf(t, layer, position), g.positions[layer]
	at := layerUpdate{scalars: scalars, gradients: all}
	sums, err := d.binder.sumUsers(t, layer, &at)
	if err != nil {
		return err
	}
	d.launch(sums)
	o := kernels.GuardOperands{Partials: g.measured.Part(0, x.bytes)}
	for _, q := range t.layers[layer-1].params {
		if q.Trained {
			gradient, of := t.cyclic.layers[layer-1].gradientOf(all[0], q)
			o.Grads, o.Types = append(o.Grads, gradient), append(o.Types, of)
		}
	}
	measure, err := d.binder.prepareGuard(d.lay.opt.MaxNorm, o)
	if err != nil {
		return err
	}
	d.compute.Launch(measure)
	d.putTogether([]runtime.Span{{Offset: x.offset, Bytes: x.bytes}}, o.Partials)
	return nil
}

// judgeStep notes the verdict on the gradients of a step, which the scalars of its updates have then, and its way to the host.
func (d cyclicCompiler) judgeStep(t *localStage) error {
	g := t.cyclic.guard
	judge, err := d.binder.prepareGuard(d.lay.opt.MaxNorm, kernels.GuardOperands{Partials: d.guard.partials, Norm: d.guard.norm, Scalars: g.scalars})
	if err != nil {
		return err
	}
	d.host(table.Command{Work: table.FillUpdate, Stage: t.stage, Event: g.free, Pages: []runtime.Span{g.filled}, Writes: true})
	d.compute.Copy(g.scalars, g.filled)
	d.compute.Record(g.free)
	d.compute.Launch(judge)
	d.compute.Copy(g.verdict, g.scalars)
	d.returnNorm()
	return nil
}
