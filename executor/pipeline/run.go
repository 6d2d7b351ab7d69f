package pipeline

import (
	"context"
	"errors"
	"fmt"
	"plimsoll/executor/internal/order"
	"slices"
	"sync"
)

// Run sends the next n minibatches through the pipeline, from empty to empty. n is a multiple of Group. When ctx ends, or a
// device fails, all drivers stop and the executor with them. Errors: *TaskError, ErrPlan, ErrStopped, the context's.
func (e *Executor) Run(ctx context.Context, n int) error {
	return e.RunUntil(ctx, nil, Segment{Minibatches: n})
}

// RunUntil is Run for one segment after the other, to the last bit. But devices do not wait for each other in between: each
// begins a segment as soon as its own part of the one before is done. Once enough is closed it ends early: then no minibatch
// enters but those that complete the update of the last one that is on its way, and the pipeline empties. Done tells how many
// were done, a multiple of Group; what they leave is what Run leaves with as many. Errors: those of Run, ErrEnough.
func (e *Executor) RunUntil(ctx context.Context, enough <-chan struct{}, segments ...Segment) error {
	if e.stopped {
		return ErrStopped
	}
	for _, s := range segments {
		if s.Minibatches < 1 || s.Minibatches%e.group != 0 {
			return fmt.Errorf("%w: %d minibatches, %d make one update", order.ErrPlan, s.Minibatches, e.group)
		}
	}
	running, over := start(segments), make(chan struct{})
	if err := e.stopping.enter(running, e.group); err != nil {
		return err
	}
	defer e.stopping.leave()
	e.stopped = true // unless all goes well
	defer close(over)
	go func() {
		select {
		case <-enough:
			lowerBounds(running, e.group)
		case <-over:
		}
	}()
	if err := e.pass(ctx, running); err != nil {
		return err
	}
	for _, l := range running {
		e.done += l.End()
	}
	e.stopped = false
	return nil
}

// pass lets all drivers go through some segments.
func (e *Executor) pass(ctx context.Context, running []runningSegment) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.reset()
	for _, d := range e.own() {
		d.begin(e.done)
	}
	var all sync.WaitGroup
	own := e.own()
	errs := make([]error, len(own))
	for i, d := range own {
		all.Go(func() {
			if errs[i] = d.guarded(func() error { return d.run(ctx, running) }); errs[i] != nil {
				cancel(errs[i])
				e.opt.World.stop(errs[i])
			}
		})
	}
	if err := e.watchdog().await(&all, cancel); err != nil {
		e.opt.World.stop(err)
		return err
	}
	err := context.Cause(ctx) // also of who has seen a bad result behind the last task
	if err == nil {
		return errors.Join(errs...)
	}
	err = e.blame(err)
	e.halt()
	return err
}

// halt waits until the streams have run what was issued before a failure: nothing goes on behind a run's back. Their errors
// are known.
func (e *Executor) halt() {
	for _, d := range e.own() {
		for _, q := range append(d.queues(), d.incoming...) {
			_ = q.S.Synchronize()
		}
	}
}

// reset frees what drivers share before a run.
func (comp *compilation) reset() {
	for _, l := range comp.channels {
		l.reset()
	}
	for _, b := range comp.halfDuplex {
		b.reset()
	}
}

func start(segments []Segment) (running []runningSegment) {
	for _, s := range segments {
		running = append(running, runningSegment{order.NewBound(s.Minibatches), s.Save})
	}
	return running
}

// lowerBounds ends a run early. A driver that has begun a segment has relied on all earlier ones, so that only the last
// segment that was begun can become shorter. Later segments go first, and become empty.
func lowerBounds(running []runningSegment, group int) {
	for _, l := range slices.Backward(running) {
		l.Lower(group)
	}
}

// reset empties a channel and grants all its blocks.
func (l *channel) reset() {
	drain(l.grants)
	drain(l.arrivals)
	l.early = l.early[:0]
	for i := range l.blocks {
		drain(l.free[i])
		drain(l.sent[i])
		l.deliveries[i] = l.deliveries[i][:0]
		if !l.asked {
			l.grants <- i
			l.free[i] <- struct{}{}
		}
	}
}

// begin prepares for a run.
func (d *driver) begin(done int) {
	d.recorder.begin()
	d.guard.begin()
	d.follow(done, 0)
}

// Updates returns how often the weights of each layer were updated, between runs, those before the first run included.
func (e *Executor) Updates() []int64 { return e.updates(e.done, e.own()[0].guard.skips()) }
