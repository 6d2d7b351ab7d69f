package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/canary"
	"plimsoll/executor/internal/pack"
	"plimsoll/runtime"
)

// Audited is the memory of one device in a step, measured: what every op owns is checked against what it writes.
type Audited struct {
	Device      int
	PeakBytes   int64 // the most that was owned while an op ran, static memory and messages included
	ExtentBytes int64 // the end of the highest byte that was written by minibatches in flight
	CopiesBytes int64 // of page-locked memory for what goes to the host
	// Live are the bytes that were owned when each op started, of a plan that runs a sequence, by position in that.
	Live []int64
}

// auditor checks a step of a plan that flushes against the layout of a device: what no minibatch in flight and no op holds
// must not change. The driver stops behind every op until the device's streams have done all that was issued; what others send
// arrives elsewhere. What comes between two ops, such as a batch, belongs to the later one.
type auditor struct {
	held     *canary.Region
	away     *canary.Region // what is with the host; nil where nothing goes there
	fixed    int64          // bytes of the arena before what is held
	next     int            // the op that is next
	count    int            // of them
	position []int          // of the ops of a sequence; nil of another plan
	audited  Audited
	done     *Audited     // nil as long as the step runs
	cycle    *cyclicStage // of a cyclic plan; else nil
}

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

// audit runs a step of blank images with weights that are 0, before there are others, and audits it. Errors: *TaskError, of what a
// kernel wrote that nobody held with a *canary.WrittenError; ErrNotInspectable; ErrPlan without a flush.
func (e *Executor) audit() error {
	if !e.opt.Audit {
		return nil
	}
	for _, d := range e.own() {
		if err := d.openAudit(); err != nil {
			return err
		}
	}
	opt := e.opt
	e.opt.Feed, e.opt.Rate, e.opt.Done, e.opt.Observe = blank{}, func(int) float32 { return 0 }, nil, nil
	steps := 1
	if e.order.plan.IsCycle() {
		steps = auditedSteps
	}
	err := e.Run(context.Background(), steps*e.group)
	e.opt, e.done = opt, opt.First
	for _, d := range e.own() {
		d.table.dropAudits()
		d.guard.forget()
	}
	return err
}

// auditedSteps is how many steps of a cyclic plan are audited: they run on into each other.
const auditedSteps = 2

// openAudit makes the auditor of a device, and all that lives throughout 0.
func (d *driver) openAudit() error {
	if !d.e.order.plan.IsFlush() {
		return fmt.Errorf("%w: a step is audited, and without a flush there is none", ErrPlan)
	}
	mem, ok := d.dev.(runtime.Inspector)
	if !ok {
		return ErrNotInspectable
	}
	m := d.e.memory[d.device]
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
	beyond := runtime.Span{Offset: a.fixed, Bytes: max(d.e.limit(d.device), m.Extent) - a.fixed}
	a.held, d.auditor = canary.New("arena", mem, beyond, items, a.count), a
	if l := d.step; l.moves() {
		a.away = canary.New("host memory", mem, runtime.Span{Space: runtime.Host, Offset: l.base, Bytes: l.locked}, l.host, a.count)
	}
	a.audited = Audited{Device: d.device, PeakBytes: a.fixed, CopiesBytes: m.Offloaded}
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

// regions are what is audited.
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
func (d *driver) auditOp(v *instance) error {
	a := d.auditor
	if a == nil || a.done != nil || a.cycle != nil && a.cycle.turn(v, d.e.order.repeats) != a.next {
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
	if d.e.opt.Audit {
		_ = d.note(command{verb: doAudit})
	}
}

// dropAudits leaves what is for audits out of a table.
func (t *table) dropAudits() {
	for i := range t.rows {
		for k := range t.rows[i].lists {
			list := &t.rows[i].lists[k]
			*list = slices.DeleteFunc(*list, func(c cell) bool { return c.variants[0].verb == doAudit })
		}
	}
}

// Audited returns what New has measured, with Options.Audit.
func (e *Executor) Audited() (all []Audited) {
	for _, d := range e.own() {
		if d.auditor != nil && d.auditor.done != nil {
			all = append(all, *d.auditor.done)
		}
	}
	return all
}
