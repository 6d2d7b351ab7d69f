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
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

func (e *Executor) limit(device int) int64 {
	if device < len(e.opt.Limits) && e.opt.Limits[device] > 0 {
		return e.opt.Limits[device]
	}
	return 0
}

// mostMinibatches is how long a run may take until it repeats itself: laying it out walks through all of them.
const mostMinibatches = 1 << 12

// layOut places everything on so many devices.
func (e *Executor) layOut(costs Costs, plan *pipeline.Plan, devices int) (err error) {
	if e.order, err = order.New(costs.Chain, costs.Platform, plan, devices, e.batchSeconds(costs)); err != nil {
		return err
	}
	e.dropEmpty()
	if plan.Platform != nil && plan.Platform.Devices > devices {
		return fmt.Errorf("%w: it is for %d devices, there are %d", order.ErrPlan, plan.Platform.Devices, devices)
	}
	for s, st := range plan.Stages {
		e.order.Late = append(e.order.Late, stageops.Late(e.Layers, st, e.order.Split[s]))
	}
	if n := e.order.Long(); n > mostMinibatches && !plan.IsFlush() {
		return fmt.Errorf("%w: %d minibatches pass before it repeats itself, %d may: give its tasks smaller shifts", order.ErrPlan, n, mostMinibatches)
	}
	if err := e.newCollectives(costs.Chain); err != nil {
		return err
	}
	newRules := func() (err error) {
		e.rules, e.group, err = e.order.NewRules(e.opt.Group)
		return err
	}
	tied := func() error { return checkTied(e.order, e.Model) }
	staged := func() error { return checkStaged(e.Workload, plan) }
	for _, part := range []func() error{e.checkPortals, tied, staged, newRules, e.checkPipeMare, e.newDiscrepancies, e.checkDeferral, e.checkShards} {
		if err := part(); err != nil {
			return err
		}
	}
	e.channels = channelsOf(e.order)
	e.newSynchronizations()
	e.newReducers()
	if err := e.newSquares(); err != nil {
		return err
	}
	e.halfDuplex = newHalfDuplex(e.order, costs.Platform)
	e.memory, e.holds = make([]Memory, devices), make([][]Hold, devices)
	for d := range devices {
		if len(e.order.Instructions[d]) == 0 {
			continue
		}
		if err := e.layDevice(costs, plan, d); err != nil {
			return fmt.Errorf("device %d: %w", d, err)
		}
	}
	return nil
}

// checkTied refuses, with ErrTied, weights that layers of two stages, or devices of one, would share.
func checkTied(o *order.Order, m *models.Model) error {
	for _, q := range m.Tied() {
		for s, st := range o.Plan.Stages {
			here, there := st.First <= q.Layer && q.Layer <= st.Last, st.First <= q.Of.Layer && q.Of.Layer <= st.Last
			if here != there || here && len(o.Hosts(s)) > 1 {
				return Tied(m, q)
			}
		}
	}
	return nil
}

// Tied returns the error, ErrTied, that a parameter of a model is that of another layer.
func Tied(m *models.Model, q models.Parameter) error {
	return fmt.Errorf("%w: %s of layer %s is %s of layer %s", ErrTied, q.Name, m.Layers[q.Layer-1].Name, q.Of.Name, m.Layers[q.Of.Layer-1].Name)
}

// newReducers makes the reducers of stages on several devices.
func (e *Executor) newReducers() {
	for s, st := range e.order.Plan.Stages {
		var bytes int64
		for l := st.First; l <= st.Last; l++ {
			bytes += kernels.Align(e.Layers[l-1].GradBytes)
		}
		bytes += e.laterBytes(s)
		hosts, sums := e.order.Hosts(s), e.order.Sums[s]
		source := hosts[0]
		if sums != nil && sums.Divided() {
			source = sums.Owner(lastPlace(e.bucketPlaces(s)))
		}
		r := newReducer(s, hosts, source, bytes, sums != nil || e.collectives[s] != nil)
		e.reducers = append(e.reducers, r)
		e.channels = append(e.channels, r.channels()...)
	}
}

// layDevice places the stages of a device.
func (e *Executor) layDevice(costs Costs, plan *pipeline.Plan, device int) error {
	d := &driver{Device: &table.Device{Number: device, Process: e.process(device)}, e: e, stages: make([]*localStage, len(e.order.On))}
	g, m := &allocator{}, &e.memory[device]
	var stages []*localStage
	for s, st := range e.order.Plan.Stages {
		if !slices.Contains(e.order.On[s], device) {
			continue
		}
		t := &localStage{deferred: e.deferred(s), discrepancy: e.discrepancies[s], stage: s, device: device, spec: st}
		if plan.IsCycle() {
			if e.StagedBytes() > 0 || e.Model.Wiring().Joins() {
				return fmt.Errorf("%w: it moves weights and state, which is for models without branches whose batches come when they are needed", order.ErrPlan)
			}
			t.repeats, d.stages[s] = e.order.Repeats, t
			if err := e.layCyclic(d, t, costs, plan, g, m); err != nil {
				return err
			}
			t.stash = order.NewWeightStash(e.rules[s], e.order.Here(s, device), 1, 1)
			for i := range t.layers {
				t.layers[i].earlier = e.earlier(s, t.layers[i].number)
			}
			e.finishCyclic(d, t, g, m)
			return nil
		}
		t.stageMessages = stageMessages{in: map[int]*channel{}, out: map[int]*channel{}, back: map[int]*channel{}, away: map[int]*channel{}}
		time, err := timeline(e.Workload, costs.Chain, plan, e.limit(device))
		if err != nil {
			return err
		}
		if err := t.compile(e.Workload, e.order, time); err != nil {
			return err
		}
		copies, sums, err := t.copies(e.order, e.rules[s])
		if err != nil {
			return err
		}
		t.shard = e.shardOf(s, device)
		t.layStatic(e.Workload, copies, sums, plan.IsFlush(), g, m)
		t.waiting.layOut(e.Workload, s == 0, s == len(e.order.On)-1, g)
		for i := range t.layers {
			t.layers[i].earlier = e.earlier(s, t.layers[i].number)
		}
		t.stash = order.NewWeightStash(e.rules[s], e.order.Here(s, device), copies, sums)
		m.Snapshot += t.savedBytes(!e.placedBefore(s))
		d.stages[s] = t
		stages = append(stages, t)
	}
	e.layGuard(d, stages, g)
	m.Static = g.end
	start := g.end
	for _, t := range stages {
		e.layMessages(t, g)
		e.layPortals(t, g)
		e.laySums(t, costs.Chain, g)
		e.reducers[t.stage].layOut(t, g)
	}
	m.Messages = g.end - start
	fixed := g.end
	switch {
	case e.order.Rings(stages[0].stage): // it has the device for itself
		if err := e.layRing(stages[0], costs, g, m); err != nil {
			return err
		}
	case plan.IsFlush():
		d.step, e.holds[device] = layStep(e.order, e.Workload, device, stages, g, m)
	default:
		e.holds[device] = laySlabs(e.order, e.Workload, device, stages, g, m)
	}
	m.Peak, m.Extent = fixed+m.Working+m.InFlight, max(g.end, e.layEvaluations(d, m))
	d.compiler = &compiler{driver: d}
	e.drivers = append(e.drivers, d)
	return nil
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
func (e *Executor) layMessages(t *localStage, g *allocator) {
	for _, l := range e.channels {
		switch {
		case l.far > 0:
		case l.kind == pipeline.CF && l.boundary == t.stage-1 && l.to == t.device:
			l.bytes, t.in[l.from] = e.Layers[t.spec.First-2].GradientBytes, l
			l.layOut(g)
		case l.kind == pipeline.CB && l.boundary == t.stage && l.to == t.device:
			l.bytes, t.back[l.from] = e.Layers[t.spec.Last-1].GradientBytes, l
			l.layOut(g)
		case l.kind == pipeline.CF && l.boundary == t.stage && l.from == t.device:
			t.out[l.to] = l
		case l.kind == pipeline.CB && l.boundary == t.stage-1 && l.from == t.device:
			t.away[l.to] = l
		}
	}
	for range e.order.LocalReturns(t.stage, t.device) {
		t.returns = append(t.returns, g.alloc(e.Layers[t.spec.Last-1].GradientBytes))
	}
	if t.spec.First > 1 {
		t.deltas.layOut(g, e.order.SendSlots(pipeline.B, t.stage, t.device), e.Layers[t.spec.First-2].GradientBytes, 1)
	}
	if t.ops[0].Out.In == stageops.InSentOutput || t.ops[1].Out.In == stageops.InSentOutput {
		t.outputs.layOut(g, e.order.SendSlots(pipeline.F, t.stage, t.device), e.Layers[t.spec.Last-1].OutputBytes, 1+len(e.order.LeavingBy(t.stage)))
	}
}

// openChannels makes the events of the channels.
func (e *Executor) openChannels() (err error) {
	by := map[int]*driver{}
	for _, d := range e.drivers {
		by[d.Number] = d
	}
	for ends, b := range e.halfDuplex {
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
	for _, l := range e.channels {
		n := len(l.blocks)
		l.arrived, l.freed = make([]runtime.Event, n), make([]runtime.Event, n)
		if l.kind == pipeline.CF && l.far == 0 && e.order.OffloadsInput(l.boundary+1) {
			l.copied = make([]runtime.Event, n)
		}
		from, to := by[l.from].Dev, by[l.to].Dev
		if e.parted(l.from, l.to) && e.here(l.to) { // it comes from nobody who records events here
			from = to
		}
		if err := errors.Join(makeEvents(from, each(l.arrived)...), makeEvents(to, each(l.freed)...), makeEvents(to, each(l.copied)...)); err != nil {
			return err
		}
	}
	return nil
}

// finishCyclic counts what a cyclic plan takes of its device.
func (e *Executor) finishCyclic(d *driver, t *localStage, g *allocator, m *Memory) {
	m.Snapshot += t.savedBytes(true)
	m.Peak, m.Extent = m.Static+m.InFlight, max(g.end, e.layCyclicEvaluation(d, t, m))
	d.compiler = &compiler{driver: d}
	e.drivers = append(e.drivers, d)
}
