package pipeline

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll/executor/internal/order"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// StuckError says that no task has ended for so long, and on each device what is issued and waits.
type StuckError struct {
	Patience time.Duration
	Devices  []string // a text for each, of one line or more
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("the pipeline is stuck: no task has ended for %v\n%s", e.Patience, strings.Join(e.Devices, "\n"))
}

// checkLinks refuses a plan of which a single message takes longer than a run waits.
func (comp *compilation) checkLinks(costs Costs, plan *pipeline.Plan) error {
	for s := 1; s < len(plan.Stages) && comp.opt.Patience > 0; s++ {
		from, to := &plan.Stages[s-1], &plan.Stages[s]
		l := costs.Chain.Layer(from.Last)
		bytes := max(l.OutputBytes, l.GradientBytes)
		for _, x := range from.Devices {
			for _, y := range to.Devices {
				if took := costs.Platform.Seconds(bytes, x, y); took > comp.opt.Patience.Seconds() && !math.IsInf(took, 0) {
					return fmt.Errorf("%w: between stages %d and %d, on devices %d and %d, a message of %s takes %s, longer than a run waits (%v): give faster links, or more patience",
						order.ErrPlan, s-1, s, x, y, units.Bytes(bytes), units.Seconds(took), comp.opt.Patience)
				}
			}
		}
	}
	return nil
}

// Widths of what is packed into one word: a minibatch above, the other stage of a portal or the first layer of a bucket, a stage, a kind
// below.
const (
	kindBits  = 4
	stageBits = 14
)

// starts says which task the driver issues now.
func (d *driver) starts(v order.Instance) {
	d.now = v
	d.progress.begin(v)
}

func (p *progress) begin(v order.Instance) {
	p.resume(v)
	p.tasks.Add(1)
}

// resume says that the driver issues a task that it has begun before.
func (p *progress) resume(v order.Instance) {
	beside := v.Far
	if v.Synchronized() {
		beside = v.Layer
	}
	p.instance.Store((uint64(v.Minibatch)<<stageBits|uint64(beside))<<(kindBits+stageBits) | uint64(v.Stage)<<kindBits | uint64(v.Kind))
	p.waiting.Store(true)
}

func (p *progress) end() { p.waiting.Store(false) }

// latest returns the task that was issued last.
func (p *progress) latest() order.Instance { return unpack(p.instance.Load()) }

func unpack(word uint64) (v order.Instance) {
	take := func(bits int) int {
		x := word & (1<<bits - 1)
		word >>= bits
		return int(x)
	}
	v.Kind, v.Stage, v.Far = pipeline.Kind(take(kindBits)), take(stageBits), take(stageBits)
	v.Minibatch = int(word)
	if v.Synchronized() {
		v.Layer, v.Far = v.Far, 0
	}
	return v
}

// dumper is a device that tells what its streams do.
type dumper interface{ Dump() string }

// guarded lets a driver do something. A panic becomes an error, so that the other devices stop, too.
func (d *driver) guarded(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = d.failed(d.now, panicked(v))
		}
	}()
	return do()
}

func panicked(v any) error { return fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack()) }

// watchdog watches the drivers of this process.
type watchdog struct {
	drivers  []*driver
	writing  *atomic.Int64 // of what saves, how many wait for a disk
	patience time.Duration // 0: for ever
}

func (e *Executor) watchdog() *watchdog {
	return &watchdog{drivers: e.own(), writing: &e.reports.writing, patience: e.opt.Patience}
}

// await waits until all that issue have ended. With patience it ends with a *StuckError when nothing happens for that long.
// Drivers may then still wait for their streams, and nothing of the executor may be used any more.
func (w *watchdog) await(all *sync.WaitGroup, stop context.CancelCauseFunc) error {
	patience := w.patience
	if patience <= 0 {
		all.Wait()
		return nil
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for last := w.look(); ; {
		select {
		case <-done:
			return nil
		case <-time.After(patience):
		}
		disk := w.waitsForDisk() // before the look, which sees a write that has ended since
		now := w.look()
		if now != last || disk {
			last = now
			continue
		}
		err := &StuckError{Patience: patience, Devices: w.report()}
		stop(err)
		return err
	}
}

// waitsForDisk reports whether a device waits until an earlier state is saved, and whoever saves one is slow: that is no fault of a
// device, however long it takes.
func (w *watchdog) waitsForDisk() bool {
	return w.writing.Load() > 0 && slices.ContainsFunc(w.drivers, func(d *driver) bool { return d.progress.saving.Load() })
}

// look returns a text that changes when anything happens.
func (w *watchdog) look() string {
	var b strings.Builder
	for _, d := range w.drivers {
		fmt.Fprintln(&b, d.progress.tasks.Load(), d.progress.waiting.Load())
		if dev, ok := d.Dev.(dumper); ok {
			b.WriteString(dev.Dump())
		}
	}
	return b.String()
}

// report says for each device what it issues, what that needs, and what its streams do.
func (w *watchdog) report() (all []string) {
	for _, d := range w.drivers {
		text := fmt.Sprintf("device %d: %s", d.Number, d.status())
		if dev, ok := d.Dev.(dumper); ok {
			text += "\n  " + strings.ReplaceAll(strings.TrimSpace(dev.Dump()), "\n", "\n  ")
		}
		all = append(all, text)
	}
	return all
}

// Status says what the devices of this process are at.
func (e *Executor) Status() string {
	var all []string
	for _, d := range e.own() {
		all = append(all, fmt.Sprintf("device %d: %s", d.Number, d.status()))
	}
	return strings.Join(all, "; ")
}

// status says what a driver is at.
func (d *driver) status() string {
	if d.progress.tasks.Load() == 0 {
		return "has issued no task"
	}
	v := d.progress.latest()
	task := fmt.Sprintf("%s of minibatch %d", v.Name(), int(d.progress.done.Load())+v.Minibatch)
	if d.progress.saving.Load() {
		return "waits until an earlier state is saved, the last task is " + task
	}
	if !d.progress.waiting.Load() {
		return "waits for its streams, the last task is " + task
	}
	if need := d.need(v); need != "" {
		return "issues " + task + ", which needs " + need
	}
	return "issues " + task
}

// need says what a task takes from other devices; "" when nothing.
func (d *driver) need(v order.Instance) string {
	o, r := d.lay.order, d.lay.order.Residue(v.Minibatch)
	var all []string
	switch {
	case v.Kind == pipeline.F && o.Crosses(v.Stage-1, r):
		all = append(all, fmt.Sprintf("CF%d from device %d", v.Stage-1, o.On[v.Stage-1][r]))
	case v.Kind == pipeline.B && o.Crosses(v.Stage, r):
		all = append(all, fmt.Sprintf("CB%d from device %d", v.Stage, o.On[v.Stage+1][r]))
	case v.Kind == pipeline.Update && len(o.Hosts(v.Stage)) > 1:
		return fmt.Sprintf("the gradients of devices %v", o.Hosts(v.Stage))
	case v.Synchronized():
		return "other gradients of the stage"
	case v.Far > 0:
		_, to := o.Through(order.PortalTask{Kind: v.Kind, From: v.Stage, To: v.Far, Residue: r})
		return fmt.Sprintf("a free block of device %d", to)
	case v.Kind.Communication():
		_, to := o.Ends(v.Kind, v.Stage, r)
		return fmt.Sprintf("a free block of device %d", to)
	}
	return strings.Join(append(all, o.Brings(v)...), " and ")
}
