package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// openObserver makes the observer of a device. Errors: ErrPlan of a plan that is no sequence; ErrNotInspectable.
func (d *driver) openObserver() error {
	if d.lay.opt.Observe == nil {
		return nil
	}
	if !d.lay.order.Plan.RunsSequence() {
		return fmt.Errorf("%w: ops are observed, and that is for a sequence on one device", order.ErrPlan)
	}
	mem, ok := d.Dev.(runtime.Inspector)
	if !ok {
		return ErrNotInspectable
	}
	d.observer = &observer{mem: mem, left: map[int][]leftBehind{}}
	return nil
}

// noteObservation notes that an op has left something. Transfers leave nothing new.
func (d taskCompiler) noteObservation(t *localStage, o *stageops.Op, f *inFlight) {
	if d.observer == nil || o.Program == nil {
		return
	}
	number := f.minibatch%d.lay.order.Repeats*len(t.spec.Ops) + o.Number
	d.observer.left[number] = t.leftBy(d.lay.Model, o, &t.slabs[f.slab], &f.at)
	d.note(table.Command{Verb: table.DoObserve, Slot: number})
}

// leftBy lists what an op of a minibatch leaves.
func (s *localStage) leftBy(m *models.Model, o *stageops.Op, sb *slab, at *frame) (all []leftBehind) {
	layer, does := m.Layers[o.Layer-1], s.spec.Ops[o.Number-1]
	add := func(what string, of runtime.Span, bytes int64) {
		all = append(all, leftBehind{Observation{Index: o.Number - 1, Op: does, Layer: layer.Name, What: what}, of.Part(0, bytes)})
	}
	add("random state", sb.scalars, kernels.ScalarsBytes)
	backward := does.Kind == schedule.Backward
	switch {
	case !backward:
		add("output", span(&o.Output, sb, at), layer.Desc(layer.Output()).Bytes())
	case m.DifferentiatesInput(o.Layer):
		for k := range 1 + len(o.Joined) {
			_, gradient := o.OfBranch(k)
			add("gradient of the input", span(gradient, sb, at), layer.Desc(models.InputOf(k)).Bytes())
		}
	}
	l := &s.layers[o.Layer-s.spec.First]
	for _, q := range l.params {
		switch {
		case backward && q.Trained:
			add("gradient of "+q.Name, s.gradient(l, at.sum, q.Grad), q.Desc.Bytes())
		case !backward && q.Statistic():
			add("statistic "+q.Name, s.value(l, at.slot, q.Value), q.Desc.Bytes())
		}
	}
	return all
}

// observe waits for an op and shows what it left.
func (d *driver) observe(op int) error {
	if d.lay.opt.Observe == nil { // of a step that is audited
		return nil
	}
	if err := d.finish(); err != nil {
		return err
	}
	x := d.observer
	for _, left := range x.left[op] {
		x.see = slices.Grow(x.see[:0], int(left.span.Bytes))[:left.span.Bytes]
		if err := x.mem.Peek(left.span, x.see); err != nil {
			return err
		}
		left.Bytes = x.see
		d.lay.opt.Observe(left.Observation)
	}
	return nil
}
