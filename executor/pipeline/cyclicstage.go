package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// works reports whether the op is issued: drops are not.
func (o *cyclicOp) works() bool {
	return o.Kind != schedule.DropWeights && o.Kind != schedule.DropState
}

// copies reports whether the op copies weights or state.
func (o *cyclicOp) copies() bool {
	switch o.Kind {
	case schedule.FetchWeights, schedule.WriteWeights, schedule.FetchState, schedule.WriteState:
		return true
	}
	return false
}

// newCyclicStage lays out the ops of a plan.
func newCyclicStage(lay *layout, t *localStage, plan *pipeline.Plan) (*cyclicStage, error) {
	c := &cyclicStage{duplex: plan.Platform.Duplex}
	for _, op := range plan.Cycle {
		c.epilogue = c.epilogue || op.Prime
		c.ops = append(c.ops, cyclicOp{Op: op, microbatch: max(op.Microbatch, 1) - 1})
	}
	for m := range plan.Microbatches {
		if err := c.compileMicrobatch(lay, t, plan, m); err != nil {
			return nil, err
		}
	}
	if err := c.checkStatistics(lay); err != nil {
		return nil, err
	}
	c.findAdds(len(lay.Layers))
	for i := range c.ops {
		c.ops[i].on = c.stream(&c.ops[i])
	}
	return c, nil
}

// compileMicrobatch compiles the ops of a microbatch. Memory follows their order: a moment is an op of the microbatch.
func (c *cyclicStage) compileMicrobatch(lay *layout, t *localStage, plan *pipeline.Plan, m int) error {
	seq, at := plan.MicrobatchOps(m)
	order := numbers(nil, len(seq))
	st := t.spec
	st.Ops = seq
	ops, err := stageops.Compile(lay.Layers, st, stageops.StageContext{Wiring: lay.Model.Wiring(), InputBytes: lay.InputBytes(), Time: &executor.Timeline{Order: order, Start: order, End: order}})
	if err != nil {
		return fmt.Errorf("microbatch %d: %w", m+1, err)
	}
	c.microbatches = append(c.microbatches, ops)
	list := [2][]stageops.Op{ops.Tasks[pipeline.F], ops.Tasks[pipeline.B]}
	for i, p := range at {
		x := &c.ops[p]
		if i < ops.Cut {
			x.op = &list[0][i]
		} else {
			x.op = &list[1][i-ops.Cut]
		}
		x.begins, x.loss, x.ends = i == 0, i == ops.Cut-1, i == len(at)-1
	}
	return nil
}

// checkStatistics refuses, with ErrPlan, plans that move a layer's running statistics by a microbatch before those of an earlier one: they would
// not be those of other plans.
func (c *cyclicStage) checkStatistics(lay *layout) error {
	for l, layer := range lay.Model.Layers {
		buffers := slices.ContainsFunc(layer.Params(), models.Parameter.Statistic)
		latest := none
		for i := range c.ops {
			o := &c.ops[i]
			if !buffers || o.Layer != l+1 || o.op == nil || !o.op.First {
				continue
			}
			if o.microbatch < latest {
				return fmt.Errorf("%w: op %d, %v: running statistics of layer %s would move by microbatch %d before microbatch %d: forward its microbatches in order",
					order.ErrPlan, i, o.Op, layer.Name, latest+1, o.microbatch+1)
			}
			latest = o.microbatch
		}
	}
	return nil
}

// findAdds finds the backwards that add to gradients of their step, and the last ones.
func (c *cyclicStage) findAdds(layers int) {
	for l := 1; l <= layers; l++ {
		all := positionsOf(c.ops, l, schedule.Backward)
		for k, p := range all {
			c.ops[p].adds, c.ops[p].updatesOwn = k > 0, k == len(all)-1
		}
	}
}

// stream returns the stream of an op.
func (c *cyclicStage) stream(o *cyclicOp) stream {
	switch o.Kind {
	case schedule.HostUpdate:
		return onHost
	case schedule.Offload, schedule.WriteWeights, schedule.WriteState, schedule.OffloadGradient:
		return toHost
	case schedule.Prefetch, schedule.FetchWeights, schedule.FetchState, schedule.FetchGradient:
		if c.duplex {
			return fromHost
		}
		return toHost
	}
	return onCompute
}

// copied returns from where to where the op of state at a position copies.
func (c *cyclicStage) copied(o *cyclicOp, position int) (dst, src runtime.Span) {
	s := &c.layers[o.Layer-1]
	switch o.Kind {
	case schedule.FetchWeights:
		return s.weights.at(position), s.weightHome
	case schedule.WriteWeights:
		return s.weightHome, s.weights.at(position)
	case schedule.FetchState:
		return s.state.at(position), s.stateHome
	case schedule.WriteState:
		return s.stateHome, s.state.at(position)
	case schedule.OffloadGradient:
		return s.onHost.at(position), s.gradient.at(position)
	}
	return s.gradient.at(position), s.onHost.at(position)
}

// gradientsAt returns the gradients that the update at a position reads, the owner's first.
func (c *cyclicStage) gradientsAt(t *localStage, position int) (all []runtime.Span) {
	o := &c.ops[position]
	return c.usersGradients(t, o.Layer, func(s *layerState) runtime.Span {
		if o.Kind == schedule.HostUpdate {
			return s.onHost.at(position)
		}
		return s.gradient.at(position)
	})
}

// usersGradients returns where the gradients of a layer, and those of the layers that have its parameters, are.
func (c *cyclicStage) usersGradients(t *localStage, layer int, at func(*layerState) runtime.Span) (all []runtime.Span) {
	if c.layers[layer-1].gradBytes > 0 {
		all = append(all, at(&c.layers[layer-1]))
	}
	for i := range t.layers {
		if slices.ContainsFunc(t.layers[i].ties, tiedTo(layer)) {
			all = append(all, at(&c.layers[i]))
		}
	}
	return all
}

// tiedTo returns a function that reports whether a parameter is a layer's.
func tiedTo(layer int) func(models.Parameter) bool {
	return func(q models.Parameter) bool { return q.Of.Layer == layer }
}

// updatesOnHost reports whether some layer is updated on the host.
func (c *cyclicStage) updatesOnHost() bool {
	return slices.ContainsFunc(c.ops, func(o cyclicOp) bool { return o.Kind == schedule.HostUpdate })
}

// updater returns the updater for the host memory of a device.
func updater(on executor.Target) (kernels.Updater, error) {
	if on.Host != nil {
		return on.Host, nil
	}
	return library.OpenHost(on.Device, library.Options{})
}

// unrolled returns the items on the device in the given number of successive steps, and the number of turns of these steps. A moment is the
// turn of an op that works.
func (c *cyclicStage) unrolled(steps int) (items []pack.Item, turns int) {
	before := make([]int, len(c.ops)+1) // ops that work, by position
	for i := range c.ops {
		if before[i+1] = before[i]; c.ops[i].works() {
			before[i+1]++
		}
	}
	n := before[len(c.ops)]
	// last returns the turn of the last op that works up to a position.
	last := func(position int) int {
		return order.FloorDiv(position, len(c.ops))*n + before[mod(position, len(c.ops))+1] - 1
	}
	turns = steps * n
	for i, it := range c.device.items {
		for k := -1; k < steps; k++ {
			x := pack.Item{Bytes: it.Bytes, Offset: c.device.spans[i].Offset, First: k*n + before[it.First], Last: min(k*n+last(it.Last), turns-1)}
			if x.First = max(x.First, 0); x.Last >= x.First {
				items = append(items, x)
			}
		}
	}
	return items, turns
}

// turn returns which turn an op has in the order of all steps.
func (c *cyclicStage) turn(v *order.Instance, microbatches int) int {
	works := 0
	n := 0
	for i := range c.ops {
		if !c.ops[i].works() {
			continue
		}
		if n++; i < v.Place.Moment() {
			works++
		}
	}
	return order.FloorDiv(v.Minibatch-v.Shift, microbatches)*n + works
}
