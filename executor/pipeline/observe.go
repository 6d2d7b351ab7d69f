package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Observation is one thing that an op left in memory. Two runs of the same model on the same batch leave the same
// bytes under the same layer and What, whatever their sequences.
type Observation struct {
	Index int // of the op in the sequence
	Op    schedule.Op
	Layer string
	What  string // "output", "gradient of the input", "gradient of conv1.weight", "statistic bn1.running_mean", "random state"
	Bytes []byte // valid during the call
}

// observer knows what every op of a sequence leaves, and where.
type observer struct {
	mem  runtime.Inspector
	left map[int][]leftBehind // by the number of an op in a step
	see  []byte               // what is shown
}

// leftBehind is where an op left something.
type leftBehind struct {
	Observation
	span runtime.Span
}

// openObserver makes the observer of a device. Errors: ErrPlan of a plan that is no sequence; ErrNotInspectable.
func (d *driver) openObserver() error {
	if d.e.opt.Observe == nil {
		return nil
	}
	if !d.e.order.plan.RunsSequence() {
		return fmt.Errorf("%w: ops are observed, and that is for a sequence on one device", ErrPlan)
	}
	mem, ok := d.dev.(runtime.Inspector)
	if !ok {
		return ErrNotInspectable
	}
	d.observer = &observer{mem: mem, left: map[int][]leftBehind{}}
	return nil
}

// noteObservation notes that an op has left something. Transfers leave nothing new.
func (d taskCompiler) noteObservation(t *localStage, o *op, f *inFlight) {
	if d.observer == nil || o.program == nil {
		return
	}
	number := f.minibatch%d.e.order.repeats*len(t.spec.Ops) + o.number
	d.observer.left[number] = t.leftBy(d.e.Model, o, &t.slabs[f.slab], &f.at)
	_ = d.note(command{verb: doObserve, slot: number})
}

// leftBy lists what an op of a minibatch leaves.
func (s *localStage) leftBy(m *models.Model, o *op, sb *slab, at *frame) (all []leftBehind) {
	layer, does := m.Layers[o.layer-1], s.spec.Ops[o.number-1]
	add := func(what string, of runtime.Span, bytes int64) {
		all = append(all, leftBehind{Observation{Index: o.number - 1, Op: does, Layer: layer.Name, What: what}, of.Part(0, bytes)})
	}
	add("random state", sb.scalars, kernels.ScalarsBytes)
	backward := does.Kind == schedule.Backward
	switch {
	case !backward:
		add("output", span(&o.output, sb, at), layer.Desc(layer.Output()).Bytes())
	case m.InputGradient || !m.Wiring().Begins(o.layer):
		for k := range 1 + len(o.joined) {
			_, gradient := o.ofBranch(k)
			add("gradient of the input", span(gradient, sb, at), layer.Desc(models.InputOf(k)).Bytes())
		}
	}
	l := &s.layers[o.layer-s.spec.First]
	for _, q := range l.params {
		switch {
		case backward && q.Trained:
			add("gradient of "+q.Name, s.gradient(l, at.sum, q.Grad), q.Desc.Bytes())
		case !backward && !q.Trained:
			add("statistic "+q.Name, s.value(l, at.slot, q.Value), q.Desc.Bytes())
		}
	}
	return all
}

// observe waits for an op and shows what it left.
func (d *driver) observe(op int) error {
	if d.e.opt.Observe == nil { // of a step that is audited
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
		d.e.opt.Observe(left.Observation)
	}
	return nil
}
