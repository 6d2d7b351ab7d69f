package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/order"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// newHostState returns the state of a stage that the host has; nil: the device has it.
func newHostState(plan *pipeline.Plan, on *pipeline.Platform) *hostState {
	if !plan.HostState {
		return nil
	}
	return &hostState{duplex: on.Duplex}
}

// layOut places the state of a stage, with copies of its weights and gradients.
func (x *hostState) layOut(t *localStage, g *allocator) {
	if x == nil {
		return
	}
	for k := range t.states {
		t.states[k] = g.alloc(t.states[k].Bytes)
	}
	own := t.shard.size(t.weights[0].Bytes)
	x.weights, x.gradients, x.scalars, x.workspace = g.alloc(own), g.alloc(own), g.alloc(kernels.ScalarsBytes), g.alloc(x.workspace.Bytes)
	x.layers = make([]hostLayer, len(t.layers))
}

// bytes returns how many bytes that takes.
func (x *hostState) bytes(t *localStage) int64 {
	g := &allocator{space: runtime.Host}
	x.layOut(t, g)
	return g.end
}

// openHostState makes what updates on the host need, if some stage of the device has its state there.
func openHostState(d *driver) error {
	if !d.lay.order.Plan.HostState {
		return nil
	}
	var events []*runtime.Event
	duplex := false
	for _, t := range d.stages {
		if t == nil {
			continue
		}
		duplex = t.host.duplex
		events = append(events, &t.host.ready, &t.host.back)
		for i := range t.host.layers {
			events = append(events, &t.host.layers[i].come, &t.host.layers[i].made)
		}
	}
	if err := openHost(d, duplex); err != nil {
		return err
	}
	var err error
	if d.updating, err = d.newQueue("updates on the host"); err != nil {
		return err
	}
	return makeEvents(d.Dev, events...)
}

// sendGradients sends a sum of gradients to the host, where that updates the stage.
func (d *compiler) sendGradients(t *localStage, m order.Move) {
	x := t.host
	if x == nil {
		return
	}
	d.compute.Copy(x.scalars, t.scalars[m.Sum].Part(0, kernels.ScalarsBytes))
	d.compute.Record(x.ready)
	d.toHost.Wait(x.ready)
	for i := range t.layers {
		l := &t.layers[i]
		for _, p := range t.shard.pieces(l.sumAt, l.own) {
			d.toHost.Copy(t.part(x.gradients, l.at, p), t.sumOf(m.Sum, l.sumAt, p))
		}
		d.toHost.Record(x.layers[i].come)
	}
}

// applyOnHost lets the host update the weights by gradients that come. The weights have come back behind awaitHost.
func (d *compiler) applyOnHost(t *localStage, m order.Move) error {
	x := t.host
	if m.To != m.From {
		return fmt.Errorf("BUG: stage %d has several versions of weights that the host updates", t.stage)
	}
	for i := range t.layers {
		l := &t.layers[i]
		update, err := d.binder.updateOnHost(t, l)
		if err != nil {
			return fmt.Errorf("update of layer %d on the host: %w", l.number, err)
		}
		if update.Launch == nil {
			continue
		}
		d.updating.Wait(x.layers[i].come)
		d.updating.Launch(update)
		d.updating.Record(x.layers[i].made)
		d.fromHost.Wait(x.layers[i].made)
		for _, p := range t.shard.pieces(l.sumAt, l.own) {
			d.fromHost.Copy(t.weightOf(m.To, l.at, p), t.part(x.weights, l.at, p))
		}
	}
	d.fromHost.Record(x.back)
	return nil
}

// awaitHost lets compute wait for weights that the host updates. Then those that others fetch are up to date.
func (d *compiler) awaitHost(t *localStage) {
	if t.host != nil {
		d.compute.Wait(t.host.back)
	}
	if t.fetches {
		d.compute.Record(t.renewed)
	}
}
