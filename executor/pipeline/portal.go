package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// Straight compiles a workload for the stages of a plan with portals; that of a plan without any is returned as it is. Weights
// and bits are the same. Errors: those of Compile, ErrPlan.
func Straight(w *Workload, lib kernels.Library, plan *pipeline.Plan) (*Workload, error) {
	if len(plan.Portals) == 0 {
		return w, nil
	}
	out, err := Compile(w.Model.Straight(lasts(plan)), lib, w.Optimizer)
	if err != nil {
		return nil, err
	}
	out.Carried = w.Layers
	if palette := executor.Palette(w); palette != nil {
		out = out.Stage(palette)
	}
	return out, matches(out.Model, plan)
}

// Portals returns the portals that a model has in stages.
func Portals(m *models.Model, stages []pipeline.Stage) (all []pipeline.Portal) {
	for _, p := range models.Portals(m.Skips(), lasts(&pipeline.Plan{Stages: stages})) {
		all = append(all, pipeline.Portal{From: p.From, To: p.To, Bytes: p.Bytes})
	}
	return all
}

// Cuts names the stages of a plan with portals: what workloads for them differ by. "" for a plan without.
func Cuts(plan *pipeline.Plan) string {
	if len(plan.Portals) == 0 {
		return ""
	}
	return fmt.Sprint(lasts(plan))
}

// lasts returns the last layers of all stages but the last one.
func lasts(plan *pipeline.Plan) (all []int) {
	for _, st := range plan.Stages[:len(plan.Stages)-1] {
		all = append(all, st.Last)
	}
	return all
}

// matches refuses a plan whose portals are not those of the model.
func matches(m *models.Model, plan *pipeline.Plan) error {
	same := func(p pipeline.Portal, q models.Portal) bool {
		return p.From == q.From && p.To == q.To && p.Bytes == q.Bytes
	}
	if !slices.EqualFunc(plan.Portals, m.Portals, same) || len(m.Portals) > 0 && !slices.Equal(m.Lasts, lasts(plan)) {
		return fmt.Errorf("%w: it has the portals %v in stages that end with layers %v, the model is compiled for %v and %v",
			order.ErrPlan, plan.Portals, lasts(plan), m.Portals, m.Lasts)
	}
	return nil
}

// layPortals places the blocks of a stage's portals.
func (lay *layout) layPortals(t *localStage, g *allocator) {
	for _, p := range lay.Model.Portals {
		in, out := portalInput{Portal: p, in: map[int]*channel{}, away: map[int]*channel{}}, portalOutput{Portal: p, out: map[int]*channel{}, back: map[int]*channel{}}
		for _, l := range lay.channels {
			switch here := l.far == p.To && l.boundary == p.From; {
			case !here:
			case p.To == t.stage && l.kind == pipeline.CF && l.to == t.device:
				in.in[l.from] = l
				l.layOut(g)
			case p.To == t.stage && l.kind == pipeline.CB && l.from == t.device:
				in.away[l.to] = l
			case p.From == t.stage && l.kind == pipeline.CB && l.to == t.device:
				out.back[l.from] = l
				l.layOut(g)
			case p.From == t.stage && l.kind == pipeline.CF && l.from == t.device:
				out.out[l.to] = l
			}
		}
		switch t.stage {
		case p.To:
			in.deltas.layOut(g, lay.order.Waiting(p, t.device), p.Bytes, 1)
			t.portalInputs = append(t.portalInputs, in) // portals are in the order of their branches
		case p.From:
			for range lay.order.Returning(p, t.device) {
				out.returns = append(out.returns, g.alloc(p.Bytes))
			}
			t.portalOutputs = append(t.portalOutputs, out)
		}
	}
}

// beginPortals empties the books before a run.
func (s *localStage) beginPortals() {
	for i := range s.portalInputs {
		s.portalInputs[i].deltas.begin()
	}
	for i := range s.portalOutputs {
		s.portalOutputs[i].freeReturns = numbers(s.portalOutputs[i].freeReturns, len(s.portalOutputs[i].returns))
	}
}

// sendBuffers returns all of a stage.
func (s *localStage) sendBuffers() []*sendBuffer {
	all := []*sendBuffer{&s.outputs, &s.deltas}
	for i := range s.portalInputs {
		all = append(all, &s.portalInputs[i].deltas)
	}
	return all
}

// skip returns where the skips of a portal lie in what a minibatch has of the stage that makes them.
func (s *localStage) skip(p *models.Portal, minibatch int) runtime.Span {
	return s.output(s.find(minibatch)).Part(p.Offset, p.Bytes)
}

// skips finds what portals bring into a stage: on this device in the slab of the stage that has made it, or in what arrives.
func (d taskCompiler) skips(ctx context.Context, t *localStage, f *inFlight) (err error) {
	for i := range t.portalInputs {
		x := &t.portalInputs[i]
		p := skipTensor{block: none, returned: none}
		from := d.lay.order.On[x.From][d.lay.order.Residue(f.minibatch)]
		if from == d.Number {
			p.span = d.stages[x.From].skip(&x.Portal, f.minibatch)
		} else if err = d.fetch(ctx, x.in[from], f.minibatch, &p); err != nil {
			return err
		}
		f.skips = append(f.skips, p)
	}
	return nil
}

// fetch takes what arrives through a portal.
func (d taskCompiler) fetch(ctx context.Context, l *channel, minibatch int, p *skipTensor) (err error) {
	p.from = l
	p.block, p.span, err = d.received(ctx, l, minibatch)
	return err
}

// deltas finds δ of what has left a stage by portals.
func (d taskCompiler) deltas(ctx context.Context, t *localStage, f *inFlight) error {
	for i := range t.portalOutputs {
		x, p := &t.portalOutputs[i], &f.deltas[i]
		from := d.lay.order.On[x.To][d.lay.order.Residue(f.minibatch)]
		if from == d.Number {
			p.span = x.returns[p.returned]
		} else if err := d.fetch(ctx, x.back[from], f.minibatch, p); err != nil {
			return err
		}
	}
	return nil
}

// targets finds where δ of what portals have brought goes: to the stage that made it on this device, or to a slot of the send
// buffer.
func (d taskCompiler) targets(t *localStage, f *inFlight) {
	for i := range t.portalInputs {
		x, p := &t.portalInputs[i], &f.skips[i]
		if d.lay.order.OnDevice(x.From, f.minibatch, d.Number) {
			maker := d.stages[x.From]
			out := &maker.portalOutputs[x.Exit-1]
			returned := pop(&out.freeReturns)
			maker.find(f.minibatch).deltas[x.Exit-1].returned = returned
			p.target = out.returns[returned]
			continue
		}
		p.target = x.deltas.take(d.compute, f.minibatch)
	}
}

// leaveByPortals says that δ of what portals have brought is ready to leave.
func (d taskCompiler) leaveByPortals(t *localStage, f *inFlight) {
	for i := range t.portalInputs {
		t.portalInputs[i].deltas.seal(d.compute, f.minibatch)
	}
}

// spentSkips gives the blocks of δ of what has left by portals back.
func (d taskCompiler) spentSkips(t *localStage, f *inFlight) {
	for i := range f.deltas {
		if p := &f.deltas[i]; p.returned != none {
			t.portalOutputs[i].freeReturns = append(t.portalOutputs[i].freeReturns, p.returned)
			p.returned = none
		}
	}
	d.releaseSkips(f.deltas)
}

// releaseSkips grants the blocks of skip tensors again.
func (d *compiler) releaseSkips(all []skipTensor) {
	for i := range all {
		p := &all[i]
		if p.from == nil {
			continue
		}
		d.release(p.from, p.block)
		p.from = nil
	}
}

// sendThrough issues a communication through a portal.
func (d taskCompiler) sendThrough(ctx context.Context, v order.Instance) error {
	if v.Kind == pipeline.CF {
		t := d.stages[v.Stage]
		i := slices.IndexFunc(t.portalOutputs, func(x portalOutput) bool { return x.To == v.Far })
		x := &t.portalOutputs[i]
		if t.opsOf(v.Minibatch).Out.In == stageops.InSentOutput {
			return d.sendFrom(ctx, &t.outputs, x.out[v.To], v, 1+i, x.Offset)
		}
		return d.message(ctx, x.out[v.To], v, t.slabs[t.find(v.Minibatch).slab].forward, t.skip(&x.Portal, v.Minibatch), nil)
	}
	t := d.stages[v.Far]
	x := &t.portalInputs[slices.IndexFunc(t.portalInputs, func(x portalInput) bool { return x.From == v.Stage })]
	return d.sendFrom(ctx, &x.deltas, x.away[v.To], v, 0, 0)
}

// bindPortals lets an op that stands at portals find what goes through them.
func (d taskCompiler) bindPortals(t *localStage, o *stageops.Op, f *inFlight, at *frame) {
	if o.Layer == t.spec.First && len(t.portalInputs) > 0 {
		at.skips = f.skips
	}
	if o.Layer == t.spec.Last && len(t.portalOutputs) > 0 {
		at.deltas = f.deltas
	}
	at.portals = d.binder.portals(at)
}
