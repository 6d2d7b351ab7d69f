package pipeline

import (
	"context"
	"fmt"
	"slices"

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
			ErrPlan, plan.Portals, lasts(plan), m.Portals, m.Lasts)
	}
	return nil
}

// checkPortals refuses, with ErrPlan, a workload that is not compiled for the plan's portals.
func (e *Executor) checkPortals() error { return matches(e.Model, e.order.plan) }

// carried returns the programs of the layers when all skips are carried: an evaluation has no portals.
func (e *Executor) carried() []*models.Programs {
	if e.Carried != nil {
		return e.Carried
	}
	return e.Layers
}

// gate is a communication through a portal, for minibatches of a residue: from a stage to another, or back.
type gate struct {
	kind              pipeline.Kind
	from, to, residue int
}

// through returns the devices that send and receive through a portal.
func (o *order) through(g gate) (from, to int) {
	from, to = o.on[g.from][g.residue], o.on[g.to][g.residue]
	if g.kind == pipeline.CB {
		return to, from
	}
	return from, to
}

// brings names what a task takes from other devices through portals.
func (o *order) brings(v visit) (all []string) {
	r := o.residue(v.minibatch)
	for _, p := range o.plan.Portals {
		for _, g := range []gate{{pipeline.CF, p.From, p.To, r}, {pipeline.CB, p.From, p.To, r}} {
			forward, back := v.kind == pipeline.F && v.stage == p.To, v.kind == pipeline.B && v.stage == p.From
			if from, to := o.through(g); from != to && (g.kind == pipeline.CF && forward || g.kind == pipeline.CB && back) {
				all = append(all, fmt.Sprintf("%v%d-%d from device %d", g.kind, p.From, p.To, from))
			}
		}
	}
	return all
}

// passages returns the lanes of a portal, with as many blocks as the plan has messages in them at one time.
func (o *order) passages(k *clock, kind pipeline.Kind, p pipeline.Portal) (all []*lane) {
	times := map[[2]int][]interval{}
	for r := range o.repeats {
		g := gate{kind, p.From, p.To, r}
		from, to := o.through(g)
		if from == to {
			continue
		}
		end := k.span(o.reads(p.From), p.From, r).End
		if kind == pipeline.CF {
			end = k.span(o.leaves(p.To), p.To, r).End
		}
		pair := [2]int{from, to}
		if times[pair] == nil {
			l := newLane(kind, p.From, from, to, 0)
			l.far, l.bytes = p.To, p.Bytes
			all = append(all, l)
		}
		times[pair] = append(times[pair], interval{k.gates[g].Start, end})
	}
	for _, l := range all {
		l.size(k.most(times[[2]int{l.from, l.to}]))
	}
	return all
}

// inlet is where skips of a portal come into a stage, and δ of them leaves it.
type inlet struct {
	models.Portal
	in, away map[int]*lane // by the other device
	deltas   outbox
}

// outlet is where skips leave the stage that makes them, and δ of them comes back.
type outlet struct {
	models.Portal
	out, back map[int]*lane // by the other device
	returns   []runtime.Span
	handed    []int // returns that no minibatch holds, of those for δ from the same device
}

// parcel is what a minibatch has at an inlet or outlet.
type parcel struct {
	span   runtime.Span // the skips at an inlet, δ of them at an outlet
	target runtime.Span // where an inlet's δ goes
	from   *lane        // that brought span, and in which block; nil from the same device, and when it is given back
	block  int
	handed int // the return that span is, from the same device
}

// layPortals places the blocks of a site's portals.
func (e *Executor) layPortals(k *clock, t *site, g *ground) {
	for _, p := range e.Model.Portals {
		in, out := inlet{Portal: p, in: map[int]*lane{}, away: map[int]*lane{}}, outlet{Portal: p, out: map[int]*lane{}, back: map[int]*lane{}}
		for _, l := range e.lanes {
			switch here := l.far == p.To && l.boundary == p.From; {
			case !here:
			case p.To == t.stage && l.kind == pipeline.CF && l.to == t.device:
				in.in[l.from] = l
				l.lay(g)
			case p.To == t.stage && l.kind == pipeline.CB && l.from == t.device:
				in.away[l.to] = l
			case p.From == t.stage && l.kind == pipeline.CB && l.to == t.device:
				out.back[l.from] = l
				l.lay(g)
			case p.From == t.stage && l.kind == pipeline.CF && l.from == t.device:
				out.out[l.to] = l
			}
		}
		switch t.stage {
		case p.To:
			in.deltas.lay(g, e.order.waiting(k, p, t.device), p.Bytes, 1)
			t.inlets = append(t.inlets, in) // portals are in the order of their branches
		case p.From:
			for range e.order.returning(p, t.device) {
				out.returns = append(out.returns, g.take(p.Bytes))
			}
			t.outlets = append(t.outlets, out)
		}
	}
}

// waiting returns how many exits a device needs for δ of a portal's skips, as order.exits does.
func (o *order) waiting(k *clock, p models.Portal, device int) int {
	var times []interval
	for r := range o.repeats {
		if o.onDevice(p.To, r, device) && !o.onDevice(p.From, r, device) {
			times = append(times, interval{k.span(pipeline.B, p.To, r).Start, k.gates[gate{pipeline.CB, p.From, p.To, r}].End})
		}
	}
	return max(k.most(times), o.most(device, func(v visit) int {
		switch {
		case v.kind == pipeline.B && v.stage == p.To && !o.onDevice(p.From, v.minibatch, device):
			return 1
		case v.kind == pipeline.CB && v.stage == p.From && v.far == p.To:
			return -1
		}
		return 0
	}))
}

// returning returns how many δ of a portal's skips wait on a device for the backward of the stage that has made them, when they
// come from a stage on the same device.
func (o *order) returning(p models.Portal, device int) int {
	return o.most(device, func(v visit) int {
		switch {
		case v.kind == pipeline.B && v.stage == p.To && o.onDevice(p.From, v.minibatch, device):
			return 1
		case v.kind == o.reads(p.From) && v.stage == p.From && o.onDevice(p.To, v.minibatch, device):
			return -1
		}
		return 0
	})
}

// beginPortals empties the books before a run.
func (s *site) beginPortals() {
	for i := range s.inlets {
		s.inlets[i].deltas.begin()
	}
	for i := range s.outlets {
		s.outlets[i].handed = numbers(s.outlets[i].handed, len(s.outlets[i].returns))
	}
}

// outboxes returns all of a site.
func (s *site) outboxes() []*outbox {
	all := []*outbox{&s.outputs, &s.deltas}
	for i := range s.inlets {
		all = append(all, &s.inlets[i].deltas)
	}
	return all
}

// skip returns where the skips of a portal lie in the slab of a minibatch in the stage that makes them.
func (s *site) skip(p *models.Portal, minibatch int) runtime.Span {
	kept := s.slabs[s.find(minibatch).slab].kept
	return kept.Part(s.tape(minibatch).out.offset+p.Offset, p.Bytes)
}

// skips finds what portals bring into a stage: on this device in the slab of the stage that has made it, or in what arrives.
func (d *driver) skips(ctx context.Context, t *site, f *flight) (err error) {
	for i := range t.inlets {
		x := &t.inlets[i]
		p := parcel{block: none, handed: none}
		from := d.e.order.on[x.From][d.e.order.residue(f.minibatch)]
		if from == d.device {
			p.span = d.sites[x.From].skip(&x.Portal, f.minibatch)
		} else if err = d.fetch(ctx, x.in[from], f.minibatch, &p); err != nil {
			return err
		}
		f.skips = append(f.skips, p)
	}
	return nil
}

// fetch takes what arrives through a portal.
func (d *driver) fetch(ctx context.Context, l *lane, minibatch int, p *parcel) (err error) {
	if p.block, err = l.take(ctx, minibatch); err != nil {
		return err
	}
	p.from, p.span = l, l.blocks[p.block]
	return d.compute.wait(l.arrived[p.block])
}

// deltas finds δ of what has left a stage by portals.
func (d *driver) deltas(ctx context.Context, t *site, f *flight) error {
	for i := range t.outlets {
		x, p := &t.outlets[i], &f.deltas[i]
		from := d.e.order.on[x.To][d.e.order.residue(f.minibatch)]
		if from == d.device {
			p.span = x.returns[p.handed]
		} else if err := d.fetch(ctx, x.back[from], f.minibatch, p); err != nil {
			return err
		}
	}
	return nil
}

// targets finds where δ of what portals have brought goes: to the stage that made it on this device, or to an exit.
func (d *driver) targets(t *site, f *flight) (err error) {
	for i := range t.inlets {
		x, p := &t.inlets[i], &f.skips[i]
		if d.e.order.onDevice(x.From, f.minibatch, d.device) {
			maker := d.sites[x.From]
			out := &maker.outlets[x.Exit-1]
			handed := pop(&out.handed)
			maker.find(f.minibatch).deltas[x.Exit-1].handed = handed
			p.target = out.returns[handed]
			continue
		}
		if p.target, err = x.deltas.take(d.compute, f.minibatch); err != nil {
			return err
		}
	}
	return nil
}

// leaveByPortals says that δ of what portals have brought is ready to leave.
func (d *driver) leaveByPortals(t *site, f *flight) error {
	for i := range t.inlets {
		if err := t.inlets[i].deltas.seal(d.compute, f.minibatch); err != nil {
			return err
		}
	}
	return nil
}

// spentSkips gives the blocks of δ of what has left by portals back.
func (d *driver) spentSkips(t *site, f *flight) error {
	for i := range f.deltas {
		if p := &f.deltas[i]; p.handed != none {
			t.outlets[i].handed = append(t.outlets[i].handed, p.handed)
			p.handed = none
		}
	}
	return d.release(f.deltas)
}

// release grants the blocks of parcels again.
func (d *driver) release(all []parcel) error {
	for i := range all {
		p := &all[i]
		if p.from == nil {
			continue
		}
		if err := d.compute.record(p.from.freed[p.block]); err != nil {
			return err
		}
		p.from.grant(p.block)
		p.from = nil
	}
	return nil
}

// sendThrough issues a communication through a portal.
func (d *driver) sendThrough(ctx context.Context, v visit) error {
	if v.kind == pipeline.CF {
		t := d.sites[v.stage]
		i := slices.IndexFunc(t.outlets, func(x outlet) bool { return x.To == v.far })
		x := &t.outlets[i]
		if t.tape(v.minibatch).out.in == atDoor {
			return d.sendFrom(ctx, &t.outputs, x.out[v.to], v, 1+i, x.Offset)
		}
		return d.message(ctx, x.out[v.to], v, t.slabs[t.find(v.minibatch).slab].forward, t.skip(&x.Portal, v.minibatch))
	}
	t := d.sites[v.far]
	x := &t.inlets[slices.IndexFunc(t.inlets, func(x inlet) bool { return x.From == v.stage })]
	return d.sendFrom(ctx, &x.deltas, x.away[v.to], v, 0, 0)
}

// fold is a number for several places and one more.
type fold struct {
	places int
	at     int64
}

// fold returns a number for places, of which those before have one, and one more; the same for the same.
func (b *binder) fold(places int, at int64) int {
	k := fold{places, at}
	n, known := b.folds[k]
	if !known {
		n = len(b.folds) + 1
		b.folds[k] = n
	}
	return n
}

// gates lets an op that stands at portals find what goes through them.
func (d *driver) gates(t *site, o *op, f *flight, at *frame) {
	if o.layer == t.spec.First && len(t.inlets) > 0 {
		at.skips = f.skips
		for i := range f.skips {
			at.portals = d.binder.fold(d.binder.fold(at.portals, f.skips[i].span.Offset), f.skips[i].target.Offset)
		}
	}
	if o.layer == t.spec.Last && len(t.outlets) > 0 {
		at.deltas = f.deltas
		for i := range f.deltas {
			at.portals = d.binder.fold(at.portals, f.deltas[i].span.Offset)
		}
	}
}
