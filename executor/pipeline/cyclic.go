package pipeline

import (
	"math"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// layCyclic lists what the stage of a cyclic plan has on its device, and places what never moves.
func (lay *layout) layCyclic(d *driver, t *localStage, costs Costs, plan *pipeline.Plan, g *allocator, m *Memory) (err error) {
	c, err := newCyclicStage(lay, t, plan)
	if err != nil {
		return err
	}
	t.cyclic, t.slabs = c, make([]slab, plan.Microbatches)
	_, _, buffers, _ := t.layLayers(lay.Model, lay.Layers)
	t.buffers, t.workspace = g.alloc(buffers), g.alloc(slices.Max(lay.UpdateWorkspaces))
	c.device.positions, c.host.positions = len(c.ops), len(c.ops)
	c.beside = besides(costs, plan)
	for i := range t.layers {
		c.layers = append(c.layers, layerState{})
		c.layLayer(lay, &t.layers[i], &c.layers[i], g)
	}
	c.findNewest()
	if err := lay.layCyclicGuard(d, t, plan, g); err != nil {
		return err
	}
	m.Static = g.end
	for k := range c.microbatches {
		c.layMicrobatch(lay, t, plan, k)
	}
	return nil
}

// layLayer places the weights, the gradient and the state of a layer: what never moves behind what else lives throughout.
func (c *cyclicStage) layLayer(lay *layout, l *stageLayer, s *layerState, g *allocator) {
	n, number, owner := len(c.ops), l.number, l.number
	for _, q := range l.ties {
		owner = q.Of.Layer
	}
	layer := lay.Model.Layers[number-1]
	s.offsets.weights, s.weightBytes = lay.WeightLayout(layer)
	s.offsets.gradients, s.gradBytes = lay.GradientLayout(layer)
	s.weightBytes, s.gradBytes = kernels.Align(s.weightBytes), kernels.Align(s.gradBytes)
	if s.ties = len(l.ties) > 0; s.ties {
		_, tied := layer.TiedBytes()
		s.ownGradient, s.gradBytes = g.alloc(s.gradBytes), kernels.Align(tied)
	}
	for k := range lay.Optimizer.States() {
		at, bytes := executor.StateLayout(lay.Optimizer, layer, k)
		l.stateAt = append(l.stateAt, at)
		s.stateAt, s.stateBytes = append(s.stateAt, s.stateBytes), s.stateBytes+kernels.Align(bytes)
	}
	masters, bytes := lay.MasterLayout(layer)
	s.masters, s.offsets.masters, s.stateBytes = s.stateBytes, masters, s.stateBytes+kernels.Align(bytes)
	of := func(kinds ...schedule.Kind) []int { return positionsOf(c.ops, number, kinds...) }
	updates := positionsOf(c.ops, owner, schedule.Update)
	s.weights = fetched(n, of(schedule.FetchWeights), of(schedule.DropWeights))
	s.state = fetched(n, of(schedule.FetchState), of(schedule.DropState))
	s.gradient = begun(n, of(schedule.Backward, schedule.FetchGradient), sorted(append(of(schedule.OffloadGradient), updates...)))
	s.onHost = begun(n, of(schedule.OffloadGradient), sorted(append(of(schedule.FetchGradient), positionsOf(c.ops, owner, schedule.HostUpdate)...)))
	if len(of(schedule.HostUpdate)) > 0 && len(of(schedule.FetchState)) == 0 {
		s.state = &residences{positions: n} // it is with the host throughout
	}
	for _, x := range []struct {
		bytes int64
		of    *residences
	}{{s.weightBytes, s.weights}, {s.stateBytes, s.state}, {s.gradBytes, s.gradient}} {
		if x.of.throughout() {
			x.of.list[0].span = g.alloc(x.bytes)
		} else {
			c.addAll(&c.device, x.bytes, x.of, number)
		}
	}
	if !lay.order.Plan.UpdatesLast && (len(of(schedule.Update)) > 0 || s.ties) {
		s.scalars = g.alloc(kernels.ScalarsBytes)
	}
	c.addAll(&c.host, s.gradBytes, s.onHost, number)
	at, wide := lay.WideLayout(layer)
	s.offsets.wide = at
	for _, p := range of(schedule.Backward) {
		c.device.add(wide, p, p, c.until(p), &c.ops[p].wide)
	}
}

// addAll adds the residences of an item of a layer.
func (c *cyclicStage) addAll(to *circle, bytes int64, r *residences, layer int) {
	for _, x := range r.list {
		var until untils
		for p := x.first; p <= x.last; p++ {
			if o := &c.ops[mod(p, len(c.ops))]; o.Layer == layer && o.works() {
				until = until.orLater(c.until(p))
			}
		}
		to.add(bytes, x.first, x.last, until, &x.span)
	}
}

// orLater returns the later positions of two.
func (a untils) orLater(b untils) untils {
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	return a
}

// until returns the last positions at which an op may begin while the one at a position runs.
func (c *cyclicStage) until(position int) (at untils) {
	for i, behind := range c.beside[mod(position, len(c.ops))] {
		at[i] = position + behind
	}
	return at
}

// besides returns, by position, how many positions behind it ops begin while the one there runs: in the steady state, by the simulation. A plan
// that cannot be simulated is refused elsewhere.
func besides(costs Costs, plan *pipeline.Plan) []untils {
	n := len(plan.Cycle)
	behind := make([]untils, n)
	free := *plan
	free.Waits = nil
	s, r, err := free.PlayCycle(costs.Chain, costs.Platform)
	if err != nil {
		return behind
	}
	starts := make([]float64, (r.WarmUp+r.Repeats+2)*n) // by instance; 0: a drop, or none yet
	for _, x := range r.Starts {
		starts[x.Step*n+x.Position] = x.Start
	}
	steady := s.Steady()
	for _, x := range r.Starts {
		if x.Step < steady.Step-1 || x.Step >= steady.Step+steady.Steps {
			continue
		}
		i := x.Step*n + x.Position
		for k := 1; k < n && i+k < len(starts); k++ {
			for slack, times := range slacks {
				if at := starts[i+k]; at > 0 && at < x.Start+times*(x.End-x.Start) {
					behind[x.Position][slack] = max(behind[x.Position][slack], k)
				}
			}
		}
	}
	return behind
}

func sorted(list []int) []int {
	slices.Sort(list)
	return list
}

// findNewest finds which copies of weights and state are current behind a run.
func (c *cyclicStage) findNewest() {
	for i := range c.layers {
		s := &c.layers[i]
		s.newest, s.newestState = newest{device: true}, newest{device: true}
		for k := range c.ops {
			if o := &c.ops[k]; !o.Prime {
				s.follow(o, i+1)
			}
		}
		for k := range c.ops {
			if o := &c.ops[k]; c.epilogue && (o.Prime || o.Kind != schedule.Update && o.Kind != schedule.HostUpdate) {
				s.follow(o, i+1)
			}
		}
		s.newest.device = s.newest.device && (s.weights.throughout() || s.weights.stays())
		s.newestState.device = s.newestState.device && (s.state.throughout() || s.state.stays())
	}
}

// follow says which copies of a layer are current behind an op, if that is of the layer.
func (x *layerState) follow(o *cyclicOp, layer int) {
	if o.Layer != layer {
		return
	}
	switch o.Kind {
	case schedule.Update:
		x.newest, x.newestState = newest{device: true}, newest{device: true}
	case schedule.HostUpdate:
		x.newest, x.newestState = newest{host: true}, newest{host: true}
	case schedule.FetchWeights, schedule.WriteWeights:
		x.newest = newest{true, true}
	case schedule.FetchState, schedule.WriteState:
		x.newestState = newest{true, true}
	case schedule.DropWeights:
		x.newest.device = false
	case schedule.DropState:
		x.newestState.device = false
	}
}

// layMicrobatch adds what a microbatch holds to the circles.
func (c *cyclicStage) layMicrobatch(lay *layout, t *localStage, plan *pipeline.Plan, m int) {
	ops, sb := c.microbatches[m], &t.slabs[m]
	_, at := plan.MicrobatchOps(m)
	t.placeBatch(sb, lay.Workload, lay.order, &allocator{})
	last := at[len(at)-1]
	images := at[0]
	for _, p := range at {
		if c.ops[p].op.Input.In == stageops.InStageInput {
			images = p
		}
	}
	for k := range sb.images {
		c.device.add(sb.images[k].Bytes, at[0], images, untils{}, &sb.images[k])
	}
	c.device.add(sb.labels.Bytes, at[0], last, untils{}, &sb.labels)
	c.device.add(sb.scalars.Bytes, at[0], last, untils{}, &sb.scalars)
	sb.items, sb.hostCopies = make([]runtime.Span, len(ops.Items)), make([]runtime.Span, len(ops.Host))
	for i, it := range ops.Items {
		end := at[max(it.First, it.Last)]
		c.device.add(it.Bytes, at[it.First], end, c.until(end), &sb.items[i])
	}
	for i, it := range ops.Host {
		end := at[max(it.First, it.Last)]
		c.host.add(it.Bytes, at[it.First], end, c.until(end), &sb.hostCopies[i])
	}
}

// layHost places what is with the host, from the beginning of page-locked memory that is shifted later. The driver has so many bytes beside it.
func (c *cyclicStage) layHost(lay *layout, on *pipeline.Platform, beside int64) {
	g := &allocator{space: runtime.Host}
	for i := range c.layers {
		s := &c.layers[i]
		of := func(kinds ...schedule.Kind) bool { return len(positionsOf(c.ops, i+1, kinds...)) > 0 }
		if of(schedule.FetchWeights, schedule.WriteWeights, schedule.HostUpdate) {
			s.weightHome = g.alloc(s.weightBytes)
		}
		if of(schedule.FetchState, schedule.WriteState, schedule.HostUpdate) {
			s.stateHome = g.alloc(s.stateBytes)
		}
		if c.guard == nil && (s.ties || of(schedule.Update, schedule.HostUpdate)) {
			s.hostScalars = g.alloc(kernels.ScalarsBytes)
		}
	}
	c.guard.layHost(g)
	c.workspace, c.sumScalars = g.alloc(slices.Max(lay.UpdateWorkspaces)), g.alloc(kernels.ScalarsBytes)
	_, limits := on.CycleLimits()
	c.host.placement = c.host.placements(math.MaxInt64/2, limits.Host-g.end-beside, func() bool { return true })[0]
	c.host.shift(runtime.Host, g.alloc(c.host.extent).Offset)
	c.locked = g.end
}

// shiftHost moves all that is with the host to where it lies in page-locked memory.
func (c *cyclicStage) shiftHost(base int64) {
	spans := append(append(slices.Clone(c.host.spans), &c.workspace, &c.sumScalars), c.guard.hosted()...)
	for i := range c.layers {
		s := &c.layers[i]
		spans = append(spans, &s.weightHome, &s.stateHome, &s.hostScalars)
	}
	for _, s := range spans {
		if s.Bytes > 0 {
			s.Offset += base
		}
	}
}

// open makes the streams and events of a device with a cyclic plan.
func (c *cyclicStage) open(d *driver) (err error) {
	if err := openHost(d, c.duplex); err != nil {
		return err
	}
	if d.updating, err = d.newQueue("updates on the host"); err != nil {
		return err
	}
	b, err := d.Dev.HostBytes(c.sumScalars)
	if err != nil {
		return err
	}
	kernels.Scalars{LR: -1, GradScale: 1}.Put(b)
	var events []*runtime.Event
	for i := range c.ops {
		if c.ops[i].begins && c.ops[i].on != onCompute {
			events = append(events, &c.ops[i].end)
		}
		for _, w := range c.ops[i].waits {
			events = append(events, &c.ops[w].end)
		}
	}
	for i := range c.layers {
		events = append(events, &c.layers[i].free)
	}
	events = append(events, c.guard.events()...)
	d.joined = make([]runtime.Event, len(d.queues()))
	return makeEvents(d.Dev, append(events, each(d.joined)...)...)
}
