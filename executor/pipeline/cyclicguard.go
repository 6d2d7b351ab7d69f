package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// cyclicGuard is what a cyclic plan adds to the guard of its device, where updates wait for all gradients (Plan.UpdatesLast).
//
// Behind the last backward of a layer the device measures the layer's gradient. Gradients of layers that share weights are added first,
// behind the last backward of these layers. So the partial sums have the bits of a plan that keeps all gradients. Behind the last backward of
// the step the device judges them. All updates read the scalars that the verdict leaves, on the device or on the host.
type cyclicGuard struct {
	scalars   runtime.Span    // of the updates of a step, with the verdict
	filled    runtime.Span    // in page-locked memory: these as the host writes them
	verdict   runtime.Span    // likewise, with the verdict, for updates on the host
	measured  runtime.Span    // partial sums of one layer
	free      runtime.Event   // filled has been read
	measures  map[int][]int   // by position of a backward: the layers whose gradients are whole behind it
	judges    int             // position of the last backward of a step
	positions map[int]partial // by layer
}

// partial is where the partial sums of a layer are among those of all.
type partial struct{ offset, bytes int64 }

// layCyclicGuard places the guard of a device with a cyclic plan. Error: ErrPlan, where gradients do not meet.
func (e *Executor) layCyclicGuard(d *driver, t *localStage, plan *pipeline.Plan, alloc *allocator) error {
	if e.opt.MaxNorm > 0 && !plan.UpdatesLast {
		return fmt.Errorf("%w: clipping to a norm of %v needs all gradients before the first update: plan for it (field \"updates_last\")", ErrPlan, e.opt.MaxNorm)
	}
	bytes := e.squares[t.stage].place.Bytes
	if !plan.UpdatesLast || bytes == 0 {
		return nil
	}
	g := &cyclicGuard{measures: map[int][]int{}, positions: map[int]partial{}}
	at, most := int64(0), int64(0)
	for i := range t.layers {
		l := &t.layers[i]
		x := partial{offset: at}
		for _, q := range l.params {
			if q.Trained {
				x.bytes += 8 * kernels.GuardPartials(q.Desc.Elements())
			}
		}
		if x.bytes > 0 {
			p, err := t.cyclic.lastBackward(t, l.number)
			if err != nil {
				return err
			}
			g.measures[p], g.positions[l.number] = append(g.measures[p], l.number), x
		}
		at, most = x.offset+x.bytes, max(most, x.bytes)
	}
	for i := range t.cyclic.ops {
		if t.cyclic.ops[i].Kind == schedule.Backward {
			g.judges = i
		}
	}
	d.guard = &guard{partials: alloc.alloc(bytes), norm: alloc.alloc(normBytes), awaited: none}
	g.scalars, g.measured = alloc.alloc(kernels.ScalarsBytes), alloc.alloc(most)
	t.cyclic.guard = g
	return nil
}

// lastBackward returns the position behind which the gradients of a layer, and those of all layers that have its parameters, are on the
// device. Error: ErrPlan, where one of them is not.
func (c *cyclicStage) lastBackward(t *localStage, layer int) (position int, err error) {
	users := []int{layer}
	for i := range t.layers {
		if slices.ContainsFunc(t.layers[i].ties, tiedTo(layer)) {
			users = append(users, i+1)
		}
	}
	for _, l := range users {
		position = max(position, slices.Max(positionsOf(c.ops, l, schedule.Backward)))
	}
	for _, l := range users {
		if c.layers[l-1].gradBytes > 0 && c.layers[l-1].gradient.covering(position) == nil {
			return 0, fmt.Errorf("%w: op %d, %v: layers %v share weights, and the gradient of layer %d is not on the device: to measure them together keep all of them until there",
				ErrPlan, position, c.ops[position].Op, users, l)
		}
	}
	return position, nil
}

// layHost places what is in page-locked memory.
func (g *cyclicGuard) layHost(at *allocator) {
	if g != nil {
		g.filled, g.verdict = at.alloc(kernels.ScalarsBytes), at.alloc(kernels.ScalarsBytes)
	}
}

// hosted lists what is in page-locked memory.
func (g *cyclicGuard) hosted() []*runtime.Span {
	if g == nil {
		return nil
	}
	return []*runtime.Span{&g.filled, &g.verdict}
}

// events lists the guard's events.
func (g *cyclicGuard) events() []*runtime.Event {
	if g == nil {
		return nil
	}
	return []*runtime.Event{&g.free}
}

// guardAccesses adds what the guard reads and writes at the position of a backward.
func (c *cyclicStage) guardAccesses(t *localStage, position int, add func(write bool, spans ...runtime.Span)) {
	if c.guard == nil {
		return
	}
	for _, l := range c.guard.measures[position] {
		add(true, c.gradientsOf(t, l, position)...)
	}
	if c.guard.judges == position {
		add(true, c.guard.verdict)
	}
}

// gradientsOf returns where the device has the gradients of a layer's own parameters at a position, the layer's first.
func (c *cyclicStage) gradientsOf(t *localStage, layer, position int) []runtime.Span {
	if s := &c.layers[layer-1]; s.ties {
		return []runtime.Span{s.ownGradient}
	}
	return c.usersGradients(t, layer, func(s *layerState) runtime.Span { return s.gradient.at(position) })
}

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
	if err := d.launch(sums); err != nil {
		return err
	}
	o := kernels.GuardOperands{Partials: g.measured.Part(0, x.bytes)}
	for _, q := range t.layers[layer-1].params {
		if q.Trained {
			o.Grads = append(o.Grads, all[0].Part(q.Grad.Offset, q.Desc.Bytes()))
		}
	}
	measure, err := d.binder.prepareGuard(d.e.opt.MaxNorm, o)
	if err != nil {
		return err
	}
	if err := d.compute.launch(measure); err != nil {
		return err
	}
	return d.putTogether([]runtime.Span{{Offset: x.offset, Bytes: x.bytes}}, o.Partials)
}

// judgeStep notes the verdict on the gradients of a step, which the scalars of its updates have then, and its way to the host.
func (d cyclicCompiler) judgeStep(t *localStage) error {
	g := t.cyclic.guard
	judge, err := d.binder.prepareGuard(d.e.opt.MaxNorm, kernels.GuardOperands{Partials: d.guard.partials, Norm: d.guard.norm, Scalars: g.scalars})
	if err != nil {
		return err
	}
	return inOrder(
		func() error {
			return d.host(command{work: fillUpdate, stage: t, event: g.free, pages: []runtime.Span{g.filled}, writes: true})
		},
		func() error { return d.compute.copy(g.scalars, g.filled) },
		func() error { return d.compute.record(g.free) },
		func() error { return d.compute.launch(judge) },
		func() error { return d.compute.copy(g.verdict, g.scalars) },
		d.returnNorm,
	)
}
