package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/canary"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
)

// blank is a feed of images without a picture.
type blank struct{}

// Images implements Feed.
func (blank) Images(_ int, dst []float32) error {
	clear(dst)
	return nil
}

// Pixels implements PixelFeed.
func (blank) Pixels(_ int, dst []uint8) error {
	clear(dst)
	return nil
}

// Labels implements Feed.
func (blank) Labels(_ int, dst []int32) error {
	clear(dst)
	return nil
}

// auditedSteps is how many steps of a cyclic plan are audited: they run on into each other.
const auditedSteps = 2

// openAudit makes the auditor of a device, and all that lives throughout 0.
func (d *driver) openAudit() error {
	if !d.lay.order.Plan.IsFlush() {
		return fmt.Errorf("%w: a step is audited, and without a flush there is none", order.ErrPlan)
	}
	mem, ok := d.Dev.(runtime.Inspector)
	if !ok {
		return ErrNotInspectable
	}
	m := d.lay.memory[d.Number]
	a := &auditor{fixed: m.Peak - m.Working - m.InFlight}
	var items []pack.Item
	if t := d.cyclicStage(); t != nil {
		a.cycle = t.cyclic
		items, a.count = t.cyclic.unrolled(auditedSteps)
	} else {
		items, a.count = slices.Clone(d.step.packed), d.step.ops
	}
	for i := range items {
		items[i].Offset -= a.fixed
	}
	beyond := runtime.Span{Offset: a.fixed, Bytes: max(d.lay.opt.limit(d.Number), m.Extent) - a.fixed}
	a.held, d.auditor = canary.New("arena", mem, beyond, items, a.count), a
	if l := d.step; l.moves() {
		a.away = canary.New("host memory", mem, runtime.Span{Space: runtime.Host, Offset: l.base, Bytes: l.locked}, l.host, a.count)
	}
	a.audited = Audited{Device: d.Number, PeakBytes: a.fixed, CopiesBytes: m.Offloaded}
	if a.position = d.step.positions(); a.position != nil {
		a.audited.Live = make([]int64, len(a.position))
	}
	return mem.Fill(runtime.Span{Bytes: m.Static}, 0)
}

// begin prepares for the step.
func (a *auditor) begin() error {
	if a == nil || a.done != nil {
		return nil
	}
	for _, r := range a.regions() {
		if err := r.Begin(0); err != nil {
			return err
		}
	}
	return a.before()
}

// regions returns the memory that is audited.
func (a *auditor) regions() []*canary.Region {
	if a.away == nil {
		return []*canary.Region{a.held}
	}
	return []*canary.Region{a.held, a.away}
}

// before comes before the next op.
func (a *auditor) before() error {
	for _, r := range a.regions() {
		if err := r.Before(a.next, 0); err != nil {
			return err
		}
	}
	live := a.fixed + a.held.Live()
	a.audited.PeakBytes = max(a.audited.PeakBytes, live)
	if n := len(a.position); n > 0 {
		a.audited.Live[a.position[a.next%n]] = live
	}
	return nil
}

// auditOp comes behind an op: what that was the last to hold is nobody's, and behind the last one everything is.
func (d *driver) auditOp(v *order.Instance) error {
	a := d.auditor
	if a == nil || a.done != nil || a.cycle != nil && a.cycle.turn(v, d.lay.order.Repeats) != a.next {
		return nil
	}
	if err := d.finish(); err != nil {
		return err
	}
	return a.pass()
}

// pass comes behind an op.
func (a *auditor) pass() error {
	for _, r := range a.regions() {
		if err := r.After(a.next); err != nil {
			return err
		}
	}
	if a.next++; a.next < a.count {
		return a.before()
	}
	a.audited.ExtentBytes, a.done = a.fixed+a.held.Extent(), &a.audited
	for _, r := range a.regions() {
		if err := r.End(); err != nil {
			return err
		}
	}
	return nil
}

// noteAudit notes that an op has ended, for an audit.
func (d *compiler) noteAudit() {
	if d.lay.opt.Audit {
		d.note(table.Command{Verb: table.DoAudit})
	}
}

// Audited returns the measurements of New's audited step, with Options.Audit.
func (e *Executor) Audited() (all []Audited) {
	for _, d := range e.own() {
		if d.auditor != nil && d.auditor.done != nil {
			all = append(all, *d.auditor.done)
		}
	}
	return all
}
