package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// layCyclicGuard places the guard of a device with a cyclic plan. Error: ErrPlan, where gradients do not meet.
func (lay *layout) layCyclicGuard(d *driver, t *localStage, plan *pipeline.Plan, alloc *allocator) error {
	if lay.opt.MaxNorm > 0 && !plan.UpdatesLast {
		return fmt.Errorf("%w: clipping to a norm of %v needs all gradients before the first update: plan for it (field \"updates_last\")", order.ErrPlan, lay.opt.MaxNorm)
	}
	bytes := lay.squares[t.stage].place.Bytes
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
				order.ErrPlan, position, c.ops[position].Op, users, l)
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
