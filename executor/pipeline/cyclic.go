package pipeline

import (
	"fmt"
	"math"
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
		buffers := slices.ContainsFunc(layer.Params(), func(q models.Parameter) bool { return !q.Trained })
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

// layCyclic places the stage of a cyclic plan on its device.
func (lay *layout) layCyclic(d *driver, t *localStage, costs Costs, plan *pipeline.Plan, g *allocator, m *Memory) (err error) {
	c, err := newCyclicStage(lay, t, plan)
	if err != nil {
		return err
	}
	t.cyclic, t.slabs = c, make([]slab, plan.Microbatches)
	_, buffers, _ := t.layLayers(lay.Model, lay.Layers)
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
	limit := costs.Platform.Memory[0]
	live, extent := c.device.place(c.leavingBytes(), limit-g.end, func() bool {
		c.device.shift(runtime.Arena, m.Static)
		_, end := lay.layCyclicEvaluation(d, t, m)
		return end <= limit
	})
	c.device.shift(runtime.Arena, g.alloc(extent).Offset)
	m.InFlight = live
	return nil
}

// layLayer places the weights, the gradient and the state of a layer: what never moves behind what else lives throughout.
func (c *cyclicStage) layLayer(lay *layout, l *stageLayer, s *layerState, g *allocator) {
	n, number, owner := len(c.ops), l.number, l.number
	for _, q := range l.ties {
		owner = q.Of.Layer
	}
	layer := lay.Model.Layers[number-1]
	s.weightAt, s.weightBytes = lay.WeightLayout(layer)
	s.weightBytes, s.gradBytes = kernels.Align(s.weightBytes), kernels.Align(l.own)
	if s.ties = len(l.ties) > 0; s.ties {
		s.ownGradient, s.gradBytes = g.alloc(l.own), kernels.Align(layer.TiedBytes())
	}
	for k := range lay.Optimizer.States() {
		at, bytes := executor.StateLayout(lay.Optimizer, layer, k)
		l.stateAt = append(l.stateAt, at)
		s.stateAt, s.stateBytes = append(s.stateAt, s.stateBytes), s.stateBytes+kernels.Align(bytes)
	}
	masters, bytes := lay.MasterLayout(layer)
	s.masters, s.masterAt, s.stateBytes = s.stateBytes, masters, s.stateBytes+kernels.Align(bytes)
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

// leavingBytes returns what a step copies to the host: what these copies read stays longer than in the order of the sequence.
func (c *cyclicStage) leavingBytes() (bytes int64) {
	for i := range c.ops {
		o := &c.ops[i]
		s := &c.layers[o.Layer-1]
		switch o.Kind {
		case schedule.WriteWeights:
			bytes += s.weightBytes
		case schedule.WriteState:
			bytes += s.stateBytes
		case schedule.OffloadGradient:
			bytes += s.gradBytes
		}
	}
	for _, ops := range c.microbatches {
		for _, it := range ops.Host {
			bytes += kernels.Align(it.Bytes)
		}
	}
	return bytes
}

// besides returns, by position, how many positions behind it ops begin while the one there runs: in the steady state, by the simulation. A plan
// that cannot be simulated is refused elsewhere.
func besides(costs Costs, plan *pipeline.Plan) []untils {
	n := len(plan.Cycle)
	behind := make([]untils, n)
	s, r, err := plan.PlayCycle(costs.Chain, costs.Platform)
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
	_, extent := c.host.place(math.MaxInt64/2, limits.Host-g.end-beside, func() bool { return true })
	c.host.shift(runtime.Host, g.alloc(extent).Offset)
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

// accesses returns the bytes that the op at a position reads and writes.
func (c *cyclicStage) accesses(t *localStage, position int) (all []memoryAccess) {
	o := &c.ops[position]
	s := &c.layers[o.Layer-1]
	add := func(write bool, spans ...runtime.Span) {
		for _, x := range spans {
			if x.Bytes > 0 {
				all = append(all, memoryAccess{x, write})
			}
		}
	}
	switch o.Kind {
	case schedule.Update:
		add(true, s.weights.at(position), s.state.at(position), s.scalars)
		add(true, c.gradientsAt(t, position)...)
	case schedule.HostUpdate:
		add(true, s.weightHome, s.stateHome, c.workspace)
		if c.guard != nil {
			add(false, c.guard.verdict)
		}
		add(true, c.gradientsAt(t, position)...)
	default:
		if o.op != nil {
			c.activations(t, position, add)
			break
		}
		dst, src := c.copied(o, position)
		add(true, dst)
		add(false, src)
	}
	return all
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

// activations adds what an op of activations reads and writes.
func (c *cyclicStage) activations(t *localStage, position int, add func(write bool, spans ...runtime.Span)) {
	o, x := &c.ops[position], c.ops[position].op
	s, sb := &c.layers[o.Layer-1], &t.slabs[o.microbatch]
	at := &frame{}
	if x.Program == nil {
		add(o.Kind == schedule.Offload, sb.hostCopies[x.Host])
		if o.begins { // compute brings the batch, and is behind this op's stream then
			add(false, append(slices.Clone(sb.images), sb.scalars, sb.labels)...)
		}
	} else {
		add(o.begins, append(slices.Clone(sb.images), sb.scalars, sb.labels)...)
		if s.weightBytes > 0 {
			add(o.updatesOwn && s.ties, s.weights.at(position))
		}
		for _, q := range t.layers[o.Layer-1].ties {
			add(false, c.layers[q.Of.Layer-1].weights.at(position))
		}
		if x.Gradients {
			add(true, s.gradient.at(position))
		}
		if o.Kind == schedule.Backward {
			c.guardAccesses(t, position, add)
		}
	}
	add(false, span(&x.Input, sb, at))
	for _, b := range []*stageops.Block{&x.Output, &x.GradOutput, &x.GradInput, &x.Scratch, &x.Kept} {
		add(true, span(b, sb, at))
	}
}

// depend finds what each op waits for.
func (c *cyclicStage) depend(t *localStage) {
	accessed := make([][][]memoryAccess, len(c.ops))
	for p := range c.ops {
		if c.ops[p].works() {
			accessed[p] = [][]memoryAccess{c.accesses(t, p)}
		}
	}
	const rounds = 3 // when the first has passed, every step is like the one before
	h := newDependencies(int(links))
	for range rounds {
		for p := range c.ops {
			o := &c.ops[p]
			if !o.works() {
				continue
			}
			o.waits = o.waits[:0]
			for _, w := range h.add(stepRef{p, 0}, o.on, accessed, o.on != onCompute) {
				o.waits = append(o.waits, w.step)
			}
		}
	}
}

// unrolled returns what lives on the device in so many steps, one behind the other, and how many turns these have: a moment is the turn of an op
// that works.
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

// updatesOnHost reports whether some layer is updated on the host.
func (c *cyclicStage) updatesOnHost() bool {
	return slices.ContainsFunc(c.ops, func(o cyclicOp) bool { return o.Kind == schedule.HostUpdate })
}

// updater returns what updates the host memory of a device.
func updater(on executor.Target) (kernels.Updater, error) {
	if on.Host != nil {
		return on.Host, nil
	}
	return library.OpenHost(on.Device, library.Options{})
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

// tiedTo returns what reports whether a parameter is a layer's.
func tiedTo(layer int) func(models.Parameter) bool {
	return func(q models.Parameter) bool { return q.Of.Layer == layer }
}

// copies reports whether the op copies weights or state.
func (o *cyclicOp) copies() bool {
	switch o.Kind {
	case schedule.FetchWeights, schedule.WriteWeights, schedule.FetchState, schedule.WriteState:
		return true
	}
	return false
}
