package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// mostMinibatches is how long a run may take until it repeats itself: laying it out walks through all of them.
const mostMinibatches = 1 << 12

// layOut places everything on so many devices.
func (lay *layout) layOut(costs Costs, plan *pipeline.Plan, devices int) (err error) {
	if err := findOrder(lay, costs, plan, devices); err != nil {
		return err
	}
	lay.channels = channelsOf(lay.order)
	lay.newSynchronizations()
	lay.newReducers()
	if err := lay.newSquares(); err != nil {
		return err
	}
	for _, x := range lay.ties {
		lay.channels = append(lay.channels, x.channels()...)
	}
	lay.halfDuplex = newHalfDuplex(lay.order, costs.Platform)
	lay.memory, lay.holds = make([]Memory, devices), make([][]Hold, devices)
	for d := range devices {
		if len(lay.order.Instructions[d]) == 0 {
			continue
		}
		if err := lay.layDevice(costs, plan, d); err != nil {
			return fmt.Errorf("device %d: %w", d, err)
		}
	}
	return nil
}

// findOrder finds in which order the devices work, and the rules of their weights. Errors: those of layOut.
func findOrder(lay *layout, costs Costs, plan *pipeline.Plan, devices int) (err error) {
	if lay.order, err = order.New(costs.Chain, costs.Platform, plan, devices, costs.batchSeconds(lay.Workload)); err != nil {
		return err
	}
	lay.dropEmpty()
	if plan.Platform != nil && plan.Platform.Devices > devices {
		return fmt.Errorf("%w: it is for %d devices, there are %d", order.ErrPlan, plan.Platform.Devices, devices)
	}
	for s, st := range plan.Stages {
		lay.order.Late = append(lay.order.Late, stageops.Late(lay.Layers, st, lay.order.Split[s]))
	}
	if n := lay.order.Long(); n > mostMinibatches && !plan.IsFlush() {
		return fmt.Errorf("%w: %d minibatches pass before it repeats itself, %d may: give its tasks smaller shifts", order.ErrPlan, n, mostMinibatches)
	}
	if err := lay.newCollectives(costs.Chain); err != nil {
		return err
	}
	newRules := func() (err error) {
		lay.rules, lay.group, err = lay.order.NewRules(lay.opt.Group)
		return err
	}
	portals := func() error { return matches(lay.Model, plan) }
	staged := func() error { return checkStaged(lay.Workload, plan) }
	ties := func() error { return newTies(lay) }
	for _, part := range []func() error{portals, staged, newRules, lay.checkPipeMare, lay.newDiscrepancies, lay.checkDeferral, lay.checkShards, ties} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// newReducers makes the reducers of stages on several devices.
func (lay *layout) newReducers() {
	for s, st := range lay.order.Plan.Stages {
		var bytes int64
		for l := st.First; l <= st.Last; l++ {
			bytes += kernels.Align(lay.Layers[l-1].GradBytes)
		}
		bytes += lay.laterBytes(s)
		hosts, sums := lay.order.Hosts(s), lay.order.Sums[s]
		source := hosts[0]
		if sums != nil && sums.Shards {
			source = sums.Owner(lastPlace(lay.bucketPlaces(s)))
		}
		r := newReducer(s, hosts, source, bytes, sums != nil || lay.collectives[s] != nil)
		lay.reducers = append(lay.reducers, r)
		lay.channels = append(lay.channels, r.channels()...)
	}
}

// layDevice places the stages of a device.
func (lay *layout) layDevice(costs Costs, plan *pipeline.Plan, device int) error {
	d := &driver{Device: &table.Device{Number: device, Process: lay.opt.World.rank(device)}, lay: lay, stages: make([]*localStage, len(lay.order.On))}
	d.compiler = &compiler{driver: d}
	g, m := &allocator{}, &lay.memory[device]
	d.buffers, d.weights = layGradientBuffers(lay, device, g), layWeightBuffers(lay, device, g)
	var stages []*localStage
	for s, st := range lay.order.Plan.Stages {
		if !slices.Contains(lay.order.On[s], device) {
			continue
		}
		t := &localStage{deferred: lay.deferred(s), discrepancy: lay.discrepancies[s], stage: s, device: device, spec: st}
		d.stages[s] = t
		if plan.IsCycle() {
			return lay.layCyclicStage(d, t, costs, plan, g, m)
		}
		if lay.HasNarrowGradients() {
			return fmt.Errorf("%w: gradients in bfloat16 are of plans that move weights and state", order.ErrPlan)
		}
		if err := lay.layStage(d, t, costs, plan, g, m); err != nil {
			return err
		}
		stages = append(stages, t)
	}
	layTied(d, g, m)
	lay.layGuard(d, stages, g)
	m.Static = g.end
	for _, t := range stages {
		lay.layMessages(t, g)
		lay.layPortals(t, g)
		lay.laySums(t, costs.Chain, g)
		lay.reducers[t.stage].layOut(t, g)
	}
	layTies(d, g)
	m.Messages = g.end - m.Static
	fixed := g.end
	switch {
	case lay.order.Rings(stages[0].stage): // it has the device for itself
		if err := lay.layRing(stages[0], costs, g, m); err != nil {
			return err
		}
	case plan.IsFlush():
		d.step, lay.holds[device] = layStep(lay.order, lay.Workload, device, stages, g, m)
	default:
		lay.holds[device] = laySlabs(lay.order, lay.Workload, device, stages, g, m)
	}
	m.Peak, m.Extent = fixed+m.Working+m.InFlight, max(g.end, lay.layEvaluations(d, m))
	lay.drivers = append(lay.drivers, d)
	return nil
}

// layStage places what a stage has throughout.
func (lay *layout) layStage(d *driver, t *localStage, costs Costs, plan *pipeline.Plan, g *allocator, m *Memory) error {
	t.stageMessages = stageMessages{in: map[int]*channel{}, out: map[int]*channel{}, back: map[int]*channel{}, away: map[int]*channel{}}
	time, err := timeline(lay.Workload, costs.Chain, plan, lay.opt.limit(t.device))
	if err != nil {
		return err
	}
	if err := t.compile(lay.Workload, lay.order, time); err != nil {
		return err
	}
	copies, sums, err := t.copies(lay.order, lay.rules[t.stage])
	if err != nil {
		return err
	}
	t.shard, t.host = lay.shardOf(t.stage, t.device), newHostState(plan, costs.Platform)
	if lay.order.Sums[t.stage].Passes() {
		t.grads = d.buffers.of(lay.order.Sums[t.stage], t.stage, lay.order.Repeats, lay.weightBytes(t.stage))
	}
	if t.fetches = lay.order.Sums[t.stage].Fetches(); t.fetches {
		t.weights = d.weights.of(lay.weightBytes(t.stage))
	}
	t.layStatic(lay.Workload, copies, sums, plan.IsFlush(), g, m)
	m.Offloaded += t.host.bytes(t)
	t.waiting.layOut(lay.Workload, t.stage == 0, t.stage == len(lay.order.On)-1, g)
	lay.layStash(t, copies, sums)
	m.Snapshot += t.savedBytes(!lay.placedBefore(t.stage))
	return nil
}

// layStash gives a stage so many copies of the weights and sums of gradients, and counts the updates that its layers have had before.
func (lay *layout) layStash(t *localStage, copies, sums int) {
	t.stash = order.NewWeightStash(lay.rules[t.stage], lay.order.Here(t.stage, t.device), copies, sums)
	for i := range t.layers {
		t.layers[i].earlier = lay.earlier(t.stage, t.layers[i].number)
	}
}

// timeline returns when the ops of a step with transfers start; nil of a step without. Errors: ErrPlan, those of executor.Workload.Timeline.
func timeline(w *Workload, c *chain.Chain, plan *pipeline.Plan, limit int64) (*executor.Timeline, error) {
	switch {
	case !plan.IsFlush() || !plan.Offloads():
		return nil, nil
	case !plan.RunsSequence():
		return nil, fmt.Errorf("%w: its stages offload, and with a flush that is for a sequence on one device", order.ErrPlan)
	case w.Model.Wiring().Joins():
		return nil, fmt.Errorf("%w: it offloads, and the model joins branches", order.ErrPlan)
	}
	memory := int64(pipeline.NoLimit)
	if limit > 0 {
		memory = limit - w.StaticBytes()
	}
	return w.Timeline(plan.Sequence(), executor.Following(c, plan), memory)
}

// layMessages places the blocks in which a stage receives, and those in which δ waits to leave it.
func (lay *layout) layMessages(t *localStage, g *allocator) {
	for _, l := range lay.channels {
		switch {
		case l.far > 0:
		case l.kind == pipeline.CF && l.boundary == t.stage-1 && l.to == t.device:
			l.bytes, t.in[l.from] = lay.Layers[t.spec.First-2].GradientBytes, l
			l.layOut(g)
		case l.kind == pipeline.CB && l.boundary == t.stage && l.to == t.device:
			l.bytes, t.back[l.from] = lay.Layers[t.spec.Last-1].GradientBytes, l
			l.layOut(g)
		case l.kind == pipeline.CF && l.boundary == t.stage && l.from == t.device:
			t.out[l.to] = l
		case l.kind == pipeline.CB && l.boundary == t.stage-1 && l.from == t.device:
			t.away[l.to] = l
		}
	}
	for range lay.order.LocalReturns(t.stage, t.device) {
		t.returns = append(t.returns, g.alloc(lay.Layers[t.spec.Last-1].GradientBytes))
	}
	if t.spec.First > 1 {
		t.deltas.layOut(g, lay.order.SendSlots(pipeline.B, t.stage, t.device), lay.Layers[t.spec.First-2].GradientBytes, 1)
	}
	if t.ops[0].Out.In == stageops.InSentOutput || t.ops[1].Out.In == stageops.InSentOutput {
		t.outputs.layOut(g, lay.order.SendSlots(pipeline.F, t.stage, t.device), lay.Layers[t.spec.Last-1].OutputBytes, 1+len(lay.order.LeavingBy(t.stage)))
	}
}

// openChannels makes the events of the channels.
func (comp *compilation) openChannels() (err error) {
	by := map[int]*driver{}
	for _, d := range comp.drivers {
		by[d.Number] = d
	}
	for ends, b := range comp.halfDuplex {
		for i, device := range ends {
			d := by[device]
			if d.halfDuplex == nil {
				d.halfDuplex = map[int]*halfDuplex{}
			}
			d.halfDuplex[ends[1-i]] = b
			if b.event[i], err = d.Dev.NewEvent(); err != nil {
				return err
			}
		}
	}
	for _, l := range comp.channels {
		n := len(l.blocks)
		l.arrived, l.freed = make([]runtime.Event, n), make([]runtime.Event, n)
		if l.kind == pipeline.CF && l.far == 0 && comp.order.OffloadsInput(l.boundary+1) {
			l.copied = make([]runtime.Event, n)
		}
		from, to := by[l.from].Dev, by[l.to].Dev
		if comp.opt.World.parts(l.from, l.to) && comp.opt.World.has(l.to) { // it comes from nobody who records events here
			from = to
		}
		if err := errors.Join(makeEvents(from, each(l.arrived)...), makeEvents(to, each(l.freed)...), makeEvents(to, each(l.copied)...)); err != nil {
			return err
		}
	}
	return nil
}

// layCyclicStage places the stage of a cyclic plan, which is its device's only one, and lays out its host memory.
func (lay *layout) layCyclicStage(d *driver, t *localStage, costs Costs, plan *pipeline.Plan, g *allocator, m *Memory) error {
	if lay.StagedBytes() > 0 || lay.Model.Wiring().Joins() {
		return fmt.Errorf("%w: it moves weights and state, which is for models without branches whose batches come when they are needed", order.ErrPlan)
	}
	t.repeats = lay.order.Repeats
	if err := lay.layCyclic(d, t, costs, plan, g, m); err != nil {
		return err
	}
	lay.layStash(t, 1, 1)
	m.Snapshot += t.savedBytes(true)
	lay.drivers = append(lay.drivers, d)
	t.cyclic.layHost(lay, costs.Platform, d.layHost())
	t.cyclic.place(lay, d, t, costs, plan, m)
	x, end := lay.layCyclicEvaluation(d, t, m)
	lay.evaluations = append(lay.evaluations, x)
	m.Peak, m.Extent, m.Offloaded = m.Static+m.InFlight, max(m.Static+kernels.Align(t.cyclic.device.extent), end), t.cyclic.locked
	return nil
}

// layHost lays out the page-locked memory and returns its size: batches, results, states that are saved and, of a stage with
// transfers, the copies of what goes to the host.
func (d *driver) layHost() int64 {
	g := &allocator{space: runtime.Host}
	d.staging = make([]staging, len(d.stages))
	for s, t := range d.stages {
		if t == nil {
			continue
		}
		p := &d.staging[s]
		p.ahead, p.early = none, none
		for i := range d.slots() {
			p.scalars[i] = g.alloc(scalarsBytes(d.lay.order.Plan))
			if s == 0 {
				p.images[i] = g.alloc(imageBytes(d.lay.Workload) * int64(d.lay.Model.Wiring().Inputs()))
			}
			if s == len(d.stages)-1 {
				p.labels[i], p.results[i] = g.alloc(d.lay.Model.Labels.Bytes()), g.alloc(lossBytes)
			}
			p.batch[i], p.result[i] = []runtime.Span{p.scalars[i], p.images[i], p.labels[i]}, []runtime.Span{p.results[i]}
		}
	}
	d.guard.layHost(g)
	for _, t := range d.stages {
		if t != nil {
			t.host.layOut(t, g)
		}
	}
	d.chunk = g.alloc(executor.ChunkBytes)
	if t := d.cyclicStage(); t != nil {
		t.cyclic.shiftHost(g.alloc(t.cyclic.locked).Offset)
	}
	d.saver = newSaver(d, g)
	if t := d.ringed(); t != nil {
		base := g.alloc(t.ring.locked).Offset
		for i := range t.slabs {
			for k := range t.slabs[i].hostCopies {
				t.slabs[i].hostCopies[k].Offset += base
			}
		}
	}
	if d.step.moves() {
		d.step.shiftHost(g.alloc(d.step.locked).Offset)
	}
	return g.end
}
