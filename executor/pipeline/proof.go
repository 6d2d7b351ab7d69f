package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// script is what all drivers issue in a run, in one order that agrees with each of theirs.
type script struct {
	actions []hazard.Action
	events  map[runtime.Event]int // their numbers
}

// number returns that of an event; none for nil.
func (s *script) number(ev runtime.Event) int {
	if ev == nil {
		return hazard.None
	}
	n, known := s.events[ev]
	if !known {
		n = len(s.events)
		s.events[ev] = n
	}
	return n
}

// issue names an action: what a driver did, for which of its tasks.
type issue struct {
	d    *driver
	task uint64 // as progress has it
	what runtime.Launch
}

func (x issue) String() string {
	v, what := unpack(x.task), "a copy"
	if x.what != nil {
		what = x.what.Kernel()
	}
	return fmt.Sprintf("%s in %s of minibatch %d on device %d", what, v.name(), v.minibatch, x.d.device)
}

// note notes an action of a dry run.
func (q queue) note(what runtime.Launch, accesses []hazard.Access, wait, record runtime.Event) {
	s := q.of.e.script
	if s == nil {
		return
	}
	s.actions = append(s.actions, hazard.Action{
		Name: issue{q.of, q.of.progress.instance.Load(), what}, Stream: q.number, Accesses: accesses, Wait: s.number(wait), Record: s.number(record),
	})
}

func (q queue) noteCopy(to *driver, dst, src runtime.Span) {
	if q.of.e.script != nil {
		q.note(nil, []hazard.Access{{Device: q.of.device, Span: src}, {Device: to.device, Span: dst, Write: true}}, nil, nil)
	}
}

// write returns what the drivers issue in two segments that show everything that the plan does: two steps, or two runs that fill
// the pipeline and go on; the second one begins in the memory of the first. Errors: ErrPlan when drivers wait for each other.
func (e *Executor) write() (*script, error) {
	s := &script{events: map[runtime.Event]int{}}
	e.script = s
	defer func() { e.script = nil }()
	n := (e.order.long() + e.group - 1) / e.group * e.group
	return s, e.dryRun(n, n)
}

// prove proves that memory, of whatever device, is reused only behind its last user. With Pace, kernels touch nothing. Errors:
// *executor.OrderError.
func (e *Executor) prove() error {
	if e.opt.Pace != nil {
		return nil
	}
	s, err := e.write()
	if err != nil {
		return err
	}
	return hazard.Check(s.actions, e.streams, len(s.events))
}
