package pipeline

import (
	"context"
)

// run plays the table for some segments and waits for all that it has issued.
func (d *driver) run(ctx context.Context, running []runningSegment) error {
	if err := d.watch.begin(d.compute); err != nil {
		return err
	}
	if err := d.auditor.begin(); err != nil {
		return err
	}
	for i, l := range running {
		if !l.in(0) {
			break
		}
		if i > 0 {
			d.follow(d.done + running[i-1].end())
		}
		if err := d.segment(ctx, l); err != nil {
			return err
		}
	}
	return d.finish()
}

// follow says how many minibatches are before the segment that begins. What other drivers see stays as it is: they may
// be in the segment before, or in this one already.
func (d *driver) follow(done int) {
	d.done = done
	d.progress.done.Store(int64(done))
	d.watch.shift(done - d.e.done)
}

// segment plays the table for a segment, and saves its end.
//
// It cannot happen that two drivers in different segments wait for each other. All tasks of a segment can be issued before any
// of the next one is: what a driver sends and grants in a segment comes after all that it sends and grants in the segment
// before.
func (d *driver) segment(ctx context.Context, l runningSegment) error {
	play := func(c *command, v *instance) error {
		if err := d.playCommand(ctx, c, v); err != nil {
			return d.failed(*v, err)
		}
		return nil
	}
	if err := d.table.segment(l.bound, d.table.isStaged(d.waitingBatch, d.done), play); err != nil {
		return err
	}
	if err := d.fillEarly(d.done + l.end()); err != nil {
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
	return d.save(ctx, d.done+l.end())
}

// waitingBatch returns the minibatch whose batch waits on the device for a stage; none.
func (d *driver) waitingBatch(stage int) int { return d.staging[stage].ahead }

// playCommand does what a command says for a minibatch.
func (d *driver) playCommand(ctx context.Context, c *command, v *instance) error {
	switch c.verb {
	case doGive:
		c.turn <- struct{}{}
	case doTake:
		select {
		case <-c.turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case doWork:
		return d.works(c, v)
	case doBegin:
		d.starts(*v)
		d.current = d.recorder.add(*v, d.done)
		return context.Cause(ctx)
	case doEnd:
		d.progress.end()
		if outer, inside := d.recorder.around(d.done); inside {
			d.now = outer
			d.progress.resume(outer)
		}
		return d.current.close(c.on)
	case doAudit:
		return d.auditOp(v)
	case doObserve:
		return d.observe(c.slot)
	case doStart:
		d.starts(*v)
		d.recorder.start(*v, d.done)
		return context.Cause(ctx)
	case doFinish:
		d.recorder.begun = nil
		d.progress.end()
		return d.recorder.add(*v, d.done).close(c.on)
	default:
		return d.put(c)
	}
	return nil
}

// works does what the host has to do for a minibatch.
func (d *driver) works(c *command, v *instance) error {
	switch c.work {
	case fillBatch:
		return d.fill(c, v.minibatch)
	case fillAhead:
		return d.staging[c.stage].fillAhead(d, c.slot, d.done+v.minibatch)
	case awaitResult:
		return d.awaitResult(c, v.minibatch)
	case fillUpdate:
		return d.fillScalars(c, v.minibatch)
	case awaitNorm:
		d.guard.awaited = v.minibatch
		return nil
	case stampStart:
		return d.watch.stamp(c, v)
	}
	return d.watch.stampEnd(c)
}
