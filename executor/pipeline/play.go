package pipeline

import (
	"context"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
)

// run plays the table for some segments and waits for all that it has issued.
func (d *driver) run(ctx context.Context, running []runningSegment) error {
	if err := d.watch.begin(d.compute); err != nil {
		return err
	}
	if err := d.auditor.begin(); err != nil {
		return err
	}
	before := 0
	for i, l := range running {
		if !l.In(0) {
			break
		}
		if i > 0 {
			before += running[i-1].End()
			d.follow(d.done+running[i-1].End(), before)
		}
		if err := d.segment(ctx, l); err != nil {
			return err
		}
	}
	return d.finish()
}

// follow says how many minibatches are before the segment that begins, of all runs and of this one. The view of other drivers stays as it
// is: they may be in the segment before, or in this one already.
func (d *driver) follow(done, before int) {
	d.done = done
	d.progress.done.Store(int64(done))
	d.watch.shift(before)
}

// segment plays the table for a segment, and saves its end.
//
// It cannot happen that two drivers in different segments wait for each other. All tasks of a segment can be issued before any
// of the next one is. A driver's messages and grants in a segment come after all of those in the segment before.
func (d *driver) segment(ctx context.Context, l runningSegment) error {
	play := func(c *table.Command, v *order.Instance) error {
		if err := d.playCommand(ctx, c, v); err != nil {
			return d.failed(*v, err)
		}
		return nil
	}
	if err := d.table.Segment(l.Bound, d.table.IsStaged(d.waitingBatch, d.done), play); err != nil {
		return err
	}
	if err := d.fillEarly(d.done + l.End()); err != nil {
		return err
	}
	if err := d.settleNorm(); err != nil {
		return err
	}
	for s := range d.staging {
		for p := &d.staging[s]; len(p.pending) > 0; {
			if err := d.tell(p); err != nil {
				return err
			}
		}
	}
	if !l.save {
		return nil
	}
	return d.save(ctx, d.done+l.End())
}

// waitingBatch returns the minibatch whose batch waits on the device for a stage; none.
func (d *driver) waitingBatch(stage int) int { return d.staging[stage].ahead }

// playCommand does what a command says for a minibatch.
func (d *driver) playCommand(ctx context.Context, c *table.Command, v *order.Instance) error {
	switch c.Verb {
	case table.DoGive:
		c.Turn <- struct{}{}
	case table.DoTake:
		select {
		case <-c.Turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case table.DoWork:
		return d.works(c, v)
	case table.DoBegin:
		d.starts(*v)
		d.current = d.recorder.add(*v, d.done)
		return context.Cause(ctx)
	case table.DoEnd:
		d.progress.end()
		if outer, inside := d.recorder.around(d.done); inside {
			d.now = outer
			d.progress.resume(outer)
		}
		return d.current.close(c.On)
	case table.DoAudit:
		return d.auditOp(v)
	case table.DoObserve:
		return d.observe(c.Slot)
	case table.DoStart:
		d.starts(*v)
		d.recorder.start(*v, d.done)
		return context.Cause(ctx)
	case table.DoFinish:
		d.recorder.begun = nil
		d.progress.end()
		return d.recorder.add(*v, d.done).close(c.On)
	default:
		return d.put(c)
	}
	return nil
}

// works does what the host has to do for a minibatch.
func (d *driver) works(c *table.Command, v *order.Instance) error {
	switch c.Work {
	case table.FillBatch:
		return d.fill(c, v.Minibatch)
	case table.FillAhead:
		return d.staging[c.Stage].fillAhead(d, c.Slot, d.done+v.Minibatch)
	case table.AwaitResult:
		return d.awaitResult(c, v.Minibatch)
	case table.FillUpdate:
		return d.fillScalars(c, v.Minibatch)
	case table.AwaitNorm:
		d.guard.awaited = v.Minibatch
		return nil
	case table.StampStart:
		return d.watch.stamp(c, v)
	}
	return d.watch.stampEnd(c)
}
