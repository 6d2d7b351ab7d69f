package pipeline

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Dry runs.
const (
	// dryRunMinibatches and maxDryRunMinibatches are how many minibatches drivers go through in dry runs: twice as many as long as that meets new
	// combinations of places.
	dryRunMinibatches, maxDryRunMinibatches = 128, 4096
)

// dryRuns lets the drivers go through runs without issuing them, so that all they launch is prepared: with a flush a step, which
// becomes the script of all steps; else runs too short to fill the pipeline, and long ones. Where minibatches of a period do not follow each other alike it matters with which of them a run
// ends, so it takes one run for each. A combination that no dry run has met is prepared when a run meets it: later segments of a
// run may begin with any blocks free. Errors: ErrPlan when the drivers wait for each other.
func (e *Executor) dryRuns() error {
	if e.order.plan.IsFlush() {
		return e.writeScripts(e.group)
	}
	for n := e.group; n < e.order.filling(); n += e.group {
		if err := e.dryRun(n, n); err != nil {
			return err
		}
	}
	for n, before := max(dryRunMinibatches, e.order.long()), -1; n <= maxDryRunMinibatches; n *= 2 {
		for i := range e.order.repeats / gcd(e.order.repeats, e.group) {
			length := ((n+e.group-1)/e.group + i) * e.group
			if err := e.dryRun(length, length); err != nil {
				return err
			}
		}
		if e.prepared() == before {
			break
		}
		before = e.prepared()
	}
	return nil
}

// prepared returns how many things are prepared on all devices.
func (e *Executor) prepared() (n int) {
	for _, d := range e.drivers {
		n += d.binder.prepared()
	}
	return n
}

// dryRun is a run, in segments of so many minibatches, of which nothing is issued. One driver goes on at a time, until it
// needs what another one has not sent yet; when none can go on they wait for each other.
//
// This is exact, and no time is involved. What a driver does depends on what others send it, and not on when: each way between
// two drivers has one who sends and one who receives, and who receives waits for one thing at a time (a Kahn process network).
// So a run does the same in whatever order its drivers go on. Streams cannot be stuck then: a wait is issued behind the record
// that it waits for, whose driver has said so.
func (e *Executor) dryRun(lengths ...int) error {
	var segments []Segment
	for _, n := range lengths {
		segments = append(segments, Segment{Minibatches: n})
	}
	running := start(segments)
	e.begin(running, true)
	var parts []*dryRunDriver
	for _, d := range e.drivers {
		p := &dryRunDriver{driver: d}
		p.next, p.stop = iter.Pull(p.read(running))
		defer p.stop()
		parts = append(parts, p)
	}
	for len(parts) > 0 {
		moved := false
		for _, p := range parts {
			before := p.moves
			_, p.on = p.next()
			if p.err != nil {
				return p.err
			}
			moved = moved || !p.on || p.moves > before
		}
		if !moved {
			return fmt.Errorf("%w: its devices wait for each other:\n%s", ErrPlan, statuses(parts))
		}
		parts = slices.DeleteFunc(parts, func(p *dryRunDriver) bool { return !p.on })
	}
	return nil
}

// dryRunDriver is a driver in a dry run.
type dryRunDriver struct {
	*driver
	next  func() (struct{}, bool)
	stop  func()
	pause func() bool // lets others go on; false when the dry run is over
	moves int         // it has begun, or received something
	on    bool        // it has not ended
	err   error
}

// read is what a driver does in a run. It yields where it waits.
func (p *dryRunDriver) read(running []runningSegment) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		p.pause = func() bool { return yield(struct{}{}) }
		p.moves++
		p.err = p.guarded(context.WithValue(context.Background(), dryRunKey{}, p), running)
	}
}

// statuses says what drivers are at.
func statuses(parts []*dryRunDriver) string {
	var all []string
	for _, p := range parts {
		all = append(all, fmt.Sprintf("device %d: %s", p.device, p.status()))
	}
	return strings.Join(all, "\n")
}

// dryRunKey is the key of a driver in the context of its dry run.
type dryRunKey struct{}

// receive takes what another driver sends. Errors: the context's.
func receive[T any](ctx context.Context, from <-chan T) (v T, err error) {
	if p, ok := ctx.Value(dryRunKey{}).(*dryRunDriver); ok {
		for len(from) == 0 {
			if !p.pause() {
				return v, ErrStopped
			}
		}
		p.moves++
	}
	select {
	case v = <-from:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
