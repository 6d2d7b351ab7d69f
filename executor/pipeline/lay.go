package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/staged"
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

// lay places everything on so many devices.
func (e *Executor) lay(costs Costs, plan *pipeline.Plan, devices int) (err error) {
	whole, timed, err := staged.Flatten(costs.Chain, plan)
	if err != nil {
		return err
	}
	k, err := newClock(Costs{whole, costs.Platform}, timed)
	if err != nil {
		return err
	}
	if e.order, err = newOrder(plan, devices, k); err != nil {
		return err
	}
	if plan.Platform != nil && plan.Platform.Devices > devices {
		return fmt.Errorf("%w: it is for %d devices, there are %d", ErrPlan, plan.Platform.Devices, devices)
	}
	if err := e.schedule(costs, plan); err != nil {
		return err
	}
	for s, st := range plan.Stages {
		e.order.late = append(e.order.late, late(e.Layers, st, e.order.split[s]))
	}
	if n := e.order.long(); n > mostMinibatches && !plan.IsFlush() {
		return fmt.Errorf("%w: %d minibatches pass before it repeats itself, %d may: give its tasks smaller shifts", ErrPlan, n, mostMinibatches)
	}
	newRules := func() error { return e.newRules(plan) }
	for _, part := range []func() error{e.checkPortals, newRules, e.checkPipeMare, e.newDiscrepancies, e.checkDeferral} {
		if err := part(); err != nil {
			return err
		}
	}
	e.lanes = e.order.lanes(k)
	e.newReducers()
	e.batons = newBatons(e.order, costs.Platform)
	e.memory, e.stays = make([]Memory, devices), make([][]stay, devices)
	for d := range devices {
		if len(e.order.turns[d]) == 0 {
			continue
		}
		if err := e.layDevice(costs, k, d); err != nil {
			return fmt.Errorf("device %d: %w", d, err)
		}
	}
	return nil
}

// newReducers makes the reducers of stages on several devices.
func (e *Executor) newReducers() {
	for s, st := range e.order.plan.Stages {
		var bytes int64
		for l := st.First; l <= st.Last; l++ {
			bytes += kernels.Align(e.Layers[l-1].GradBytes)
		}
		later := e.deferred()
		bytes += later.bytes(bufferBytes(e.Model.Layers[st.First-1 : st.Last]))
		r := newReducer(e.order.hosts(s), bytes)
		e.reducers = append(e.reducers, r)
		e.lanes = append(e.lanes, r.lanes()...)
	}
}

// layDevice places the sites of a device.
func (e *Executor) layDevice(costs Costs, k *clock, device int) error {
	d := &driver{e: e, device: device, sites: make([]*site, len(e.order.on))}
	g, m := &ground{}, &e.memory[device]
	var sites []*site
	for s, st := range e.order.plan.Stages {
		if !slices.Contains(e.order.on[s], device) {
			continue
		}
		t := &site{deferred: e.deferred(), discrepancy: e.discrepancies[s], stage: s, device: device, spec: st, in: map[int]*lane{}, out: map[int]*lane{}, back: map[int]*lane{}, away: map[int]*lane{}}
		if err := t.record(e.Layers, e.order, e.InputBytes()); err != nil {
			return err
		}
		copies, sums, err := t.copies(e.order, e.rules[s])
		if err != nil {
			return err
		}
		t.layStatic(e.Workload, copies, sums, g, m)
		for i := range t.layers {
			t.layers[i].earlier = e.earlier(s, t.layers[i].number)
		}
		t.shelf = newShelf(e.rules[s], e.order.here(s, device), copies, sums)
		if !e.placedBefore(s) {
			m.Snapshot += t.stateBytes()
		}
		d.sites[s] = t
		sites = append(sites, t)
	}
	start := g.end
	for _, t := range sites {
		e.layMessages(k, t, g)
		e.layPortals(k, t, g)
		e.reducers[t.stage].lay(t, g)
	}
	m.Messages = g.end - start
	fixed := g.end
	if e.order.rings(sites[0].stage) { // it has the device for itself
		if err := e.layRing(sites[0], costs, k, g, m); err != nil {
			return err
		}
	} else {
		e.stays[device] = laySlabs(e.order, e.Workload, device, sites, g, m)
	}
	m.Peak, m.Extent = fixed+m.Working+m.InFlight, max(g.end, e.layExams(d, m))
	e.drivers = append(e.drivers, d)
	return nil
}

// layMessages places the blocks in which a site receives, and those in which δ waits to leave it.
func (e *Executor) layMessages(k *clock, t *site, g *ground) {
	for _, l := range e.lanes {
		switch {
		case l.far > 0:
		case l.kind == pipeline.CF && l.boundary == t.stage-1 && l.to == t.device:
			l.bytes, t.in[l.from] = e.Layers[t.spec.First-2].GradientBytes, l
			l.lay(g)
		case l.kind == pipeline.CB && l.boundary == t.stage && l.to == t.device:
			l.bytes, t.back[l.from] = e.Layers[t.spec.Last-1].GradientBytes, l
			l.lay(g)
		case l.kind == pipeline.CF && l.boundary == t.stage && l.from == t.device:
			t.out[l.to] = l
		case l.kind == pipeline.CB && l.boundary == t.stage-1 && l.from == t.device:
			t.away[l.to] = l
		}
	}
	for range e.order.hand(t.stage, t.device) {
		t.returns = append(t.returns, g.take(e.Layers[t.spec.Last-1].GradientBytes))
	}
	if t.spec.First > 1 {
		t.deltas.lay(g, e.order.exits(k, pipeline.B, t.stage, t.device), e.Layers[t.spec.First-2].GradientBytes, 1)
	}
	if t.tapes[0].out.in == atDoor || t.tapes[1].out.in == atDoor {
		t.outputs.lay(g, e.order.exits(k, pipeline.F, t.stage, t.device), e.Layers[t.spec.Last-1].OutputBytes, 1+len(e.order.leavingBy(t.stage)))
	}
}

// openLanes makes the events of the lanes.
func (e *Executor) openLanes() (err error) {
	by := map[int]*driver{}
	for _, d := range e.drivers {
		by[d.device] = d
	}
	for ends, b := range e.batons {
		for i, device := range ends {
			d := by[device]
			if d.batons == nil {
				d.batons = map[int]*baton{}
			}
			d.batons[ends[1-i]] = b
			if b.event[i], err = d.dev.NewEvent(); err != nil {
				return err
			}
		}
	}
	for _, l := range e.lanes {
		l.arrived, l.freed = make([]runtime.Event, len(l.blocks)), make([]runtime.Event, len(l.blocks))
		for i := range l.blocks {
			if l.arrived[i], err = by[l.from].dev.NewEvent(); err != nil {
				return err
			}
			if l.freed[i], err = by[l.to].dev.NewEvent(); err != nil {
				return err
			}
		}
		if l.kind != pipeline.CF || e.order.held[l.boundary+1] == 0 {
			continue
		}
		l.copied = make([]runtime.Event, len(l.blocks))
		for i := range l.blocks {
			if l.copied[i], err = by[l.to].dev.NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}
