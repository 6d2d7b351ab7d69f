package pipeline

import (
	"context"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// measures returns the places of the partial sums that a device of the stage measures.
func (x *squares) measures(device int) []runtime.Span {
	if x.parts == nil {
		return []runtime.Span{x.place}
	}
	return x.parts[device]
}

// of returns how many bytes those take that a device measures.
func (x *squares) of(device int) (bytes int64) {
	for _, p := range x.measures(device) {
		bytes += p.Bytes
	}
	return bytes
}

// newSquares lays out the partial sums of all layers, of a plan with a flush. Errors: ErrPlan when gradients are to be clipped without one.
func (lay *layout) newSquares() error {
	lay.squares = make([]squares, len(lay.order.On))
	if !lay.order.Plan.IsFlush() {
		if lay.opt.MaxNorm > 0 {
			return fmt.Errorf("%w: clipping to a norm of %v needs the gradients of all stages at one time: without a flush there is none, the plan's weight versions are %q",
				order.ErrPlan, lay.opt.MaxNorm, lay.order.Plan.Versions)
		}
		return nil
	}
	at := int64(0)
	for s, st := range lay.order.Plan.Stages {
		place := runtime.Span{Offset: at}
		for _, l := range lay.Model.Layers[st.First-1 : st.Last] {
			for _, q := range l.Params() {
				if q.Trained {
					place.Bytes += 8 * kernels.GuardPartials(q.Desc.Elements())
				}
			}
		}
		at = place.End()
		lay.squares[s] = squares{place: place, parts: lay.partials(s, place.Offset)}
		lay.squares[s].tell = lay.tellers(s, &lay.squares[s])
		lay.channels = append(lay.channels, lay.squares[s].tell...)
	}
	return nil
}

// partials returns the places of the partial sums that devices with a shard of a stage measure, which begin somewhere; nil: all measure
// all.
func (lay *layout) partials(s int, at int64) map[int][]runtime.Span {
	parts := map[int][]runtime.Span{}
	for _, d := range lay.order.Hosts(s) {
		h, t := lay.shardOf(s, d), &localStage{spec: lay.order.Plan.Stages[s]}
		if h == nil {
			return nil
		}
		t.layLayers(lay.Model, lay.Layers)
		at := at
		for i := range t.layers {
			for _, q := range t.layers[i].params {
				if !q.Trained {
					continue
				}
				for _, p := range h.pieces(t.layers[i].sumAt+q.Grad.Offset, q.Desc.Bytes()) {
					parts[d] = joined(parts[d], runtime.Span{Offset: at + 8*(p.behind/guardBytes), Bytes: 8 * kernels.GuardPartials(p.bytes/kernels.Float32.Size())})
				}
				at += 8 * kernels.GuardPartials(q.Desc.Elements())
			}
		}
	}
	return parts
}

// joined returns spans and another one behind them, which makes the last one longer when it lies right behind it: so a copy moves both.
func joined(all []runtime.Span, next runtime.Span) []runtime.Span {
	if n := len(all); n > 0 && all[n-1].End() == next.Offset {
		all[n-1].Bytes += next.Bytes
		return all
	}
	return append(all, next)
}

// tellers returns the channels by which devices of a stage send what they measure to those that do not: with shards each of them, else
// the first one.
func (lay *layout) tellers(s int, x *squares) (all []*channel) {
	hosts := lay.order.Hosts(s)
	for i, from := range hosts {
		if i > 0 && x.parts == nil {
			break
		}
		for d, instructions := range lay.order.Instructions {
			bytes, has := x.of(from), slices.Contains(hosts, d)
			if bytes == 0 || len(instructions) == 0 || has && x.parts == nil || d == from {
				continue
			}
			l := between("the norm's parts", s, from, d, 1)
			l.bytes = bytes
			all = append(all, l)
		}
	}
	return all
}

// layGuard places the guard of a device with some stages; none where nothing is judged.
func (lay *layout) layGuard(d *driver, stages []*localStage, g *allocator) {
	bytes := lay.squares[len(lay.squares)-1].place.End()
	if bytes == 0 {
		return
	}
	d.guard = &guard{partials: g.alloc(bytes), norm: g.alloc(normBytes), stages: len(stages), awaited: none}
	for s, x := range lay.squares {
		for _, l := range x.tell {
			if l.to != d.Number {
				continue
			}
			if x.parts == nil {
				l.blocks[0] = d.guard.partials.Part(x.place.Offset, x.place.Bytes)
			} else {
				l.layOut(g)
			}
			d.guard.arrivals = append(d.guard.arrivals, arriving{l, x.parts[l.from]})
		}
		if d.stages[s] != nil {
			d.stages[s].squares = x.measured(d, g)
		}
	}
}

// measured returns where a device measures a stage's gradients: at their place among those of all layers, if that is one piece at a
// multiple of kernels.Alignment.
func (x *squares) measured(d *driver, g *allocator) runtime.Span {
	if places := x.measures(d.Number); len(places) == 1 && places[0].Offset%kernels.Alignment == 0 {
		return d.guard.partials.Part(places[0].Offset, places[0].Bytes)
	}
	return g.alloc(x.of(d.Number))
}

// normBytes is the size of a norm, a float32.
const normBytes = 4

// layHost places what is in page-locked memory.
func (g *guard) layHost(at *allocator) {
	if g != nil {
		g.host = at.alloc(normBytes)
		g.page = []runtime.Span{g.host}
	}
}

// open makes the event.
func (g *guard) open(dev runtime.Device) (err error) {
	if g != nil {
		g.returned, err = dev.NewEvent()
	}
	return err
}

// begin opens the books before a run.
func (g *guard) begin() {
	if g != nil {
		g.due, g.steps, g.awaited = g.due[:0], 0, none
	}
}

// forget makes the guard what it was before the first run.
func (g *guard) forget() {
	if g != nil {
		g.skipped = 0
	}
}

// measure measures the gradients of a stage whose update is due, and tells the devices that do not have it.
func (d *compiler) measure(ctx context.Context, t *localStage, m order.Move) error {
	g, x := d.guard, &d.lay.squares[t.stage]
	if t.squares.Bytes == 0 {
		return nil
	}
	launches, err := d.binder.guard(g, t, m.Sum, d.lay.opt.MaxNorm)
	if err != nil {
		return err
	}
	d.compute.Launch(launches[0])
	d.putTogether(x.measures(d.Number), t.squares)
	var tell []*channel
	for _, l := range x.tell {
		if l.from == d.Number {
			tell = append(tell, l)
		}
	}
	if len(tell) == 0 {
		return nil
	}
	return d.sums().tellAll(ctx, t, tell, g.steps, t.squares)
}

// putTogether copies partial sums that lie behind each other to their places among those of all layers.
func (d *compiler) putTogether(places []runtime.Span, from runtime.Span) {
	at := int64(0)
	for _, p := range places {
		to := d.guard.partials.Part(p.Offset, p.Bytes)
		if to != from {
			d.compute.Copy(to, from.Part(at, p.Bytes))
		}
		at += p.Bytes
	}
}

// returnNorm lets the norm go to the host.
func (d *compiler) returnNorm() {
	d.host(table.Command{Work: table.AwaitNorm, Event: d.guard.returned, Pages: d.guard.page})
	d.compute.Copy(d.guard.host, d.guard.norm)
	d.compute.Record(d.guard.returned)
}

// settleNorm waits for the norm of the step before, if it is on its way. It is told with the step's last minibatch; an update that
// did nothing does not count.
func (d *driver) settleNorm() error {
	g := d.guard
	if g == nil || g.awaited == none {
		return nil
	}
	if err := g.returned.Synchronize(); err != nil {
		return err
	}
	b, err := d.Dev.HostBytes(g.host)
	if err != nil {
		return err
	}
	norm := float64(*(*float32)(unsafe.Pointer(&b[0])))
	skips := math.IsNaN(norm) || math.IsInf(norm, 0)
	if skips {
		g.skipped++
	}
	for i := range d.staging[len(d.stages)-1].pending {
		if r := &d.staging[len(d.stages)-1].pending[i]; r.minibatch == g.awaited {
			r.norm, r.skipped = norm, skips
		}
	}
	g.awaited = none
	return nil
}

// skips returns how many updates of a device's stages did nothing.
func (g *guard) skips() int {
	if g == nil {
		return 0
	}
	return g.skipped
}

// guard returns the launches that measure the gradients in a slot of a stage, and that judge those of all stages for its update.
func (b *binder) guard(g *guard, s *localStage, sum int, most float32) (launches [2]table.Prepared, err error) {
	k := updateKey{stage: s, sum: sum}
	if launches, ok := b.guards[k]; ok {
		return launches, nil
	}
	operands := [2]kernels.GuardOperands{
		{Grads: s.gradients(sum), Partials: s.squares},
		{Partials: g.partials, Norm: g.norm, Scalars: s.scalars[sum]},
	}
	for i, o := range operands {
		if i == 0 && len(o.Grads) == 0 {
			continue
		}
		if launches[i], err = b.prepareGuard(most, o); err != nil {
			return launches, fmt.Errorf("guard of stage %d: %w", s.stage, err)
		}
	}
	b.guards[k] = launches
	return launches, nil
}

// prepareGuard returns the launch of a guard.
func (b *binder) prepareGuard(most float32, o kernels.GuardOperands) (table.Prepared, error) {
	launch, err := b.lib.PrepareGuard(kernels.Guard{MaxNorm: most}, o)
	return b.ready(launch, hazard.Uses(b.device, o.Uses())), err
}

// gradients returns the gradients in a slot, parameter by parameter, in the order of the layers; with a shard only its
// own.
func (s *localStage) gradients(sum int) (all []runtime.Span) {
	for i := range s.layers {
		l := &s.layers[i]
		for _, q := range l.params {
			if !q.Trained {
				continue
			}
			for _, p := range s.shard.pieces(l.sumAt+q.Grad.Offset, q.Desc.Bytes()) {
				all = append(all, s.sumOf(sum, l.sumAt+q.Grad.Offset, p))
			}
		}
	}
	return all
}
