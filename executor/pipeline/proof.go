package pipeline

import (
	"fmt"

	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// String names a command that is issued: what it is, in which task.
func (c *command) String() string {
	v, what := unpack(c.task), "a copy"
	if c.Launch != nil {
		what = c.Kernel()
	}
	return fmt.Sprintf("%s in %s of minibatch %d on device %d", what, v.name(), v.minibatch, c.on.of.device)
}

// accesses returns what a command does to memory.
func (c *command) touches() []hazard.Access {
	if c.verb == doCopy {
		return []hazard.Access{{Device: c.on.of.device, Span: c.src}, {Device: c.to.device, Span: c.dst, Write: true}}
	}
	return c.accesses
}

// weaver puts the commands of all drivers into one order.
type weaver struct {
	actions []hazard.Action
	events  map[runtime.Event]int // their numbers
	turns   map[chan struct{}]int // that were given and not yet taken
}

// weave returns what the drivers issue when each plays its script so many times, in an order that agrees with each of theirs and
// has every record before the waits that see it. Errors: ErrPlan when the drivers wait for each other.
func (e *Executor) weave(rounds int) (*weaver, error) {
	w := &weaver{events: map[runtime.Event]int{}, turns: map[chan struct{}]int{}}
	for _, l := range e.channels {
		for i := range l.blocks {
			if !l.asked {
				w.turns[l.free[i]] = 1
			}
		}
	}
	at, left := make([]int, len(e.drivers)), len(e.drivers)
	for left > 0 {
		moved := false
		for i, d := range e.drivers {
			end := rounds * len(d.script)
			if at[i] > end {
				continue
			}
			for at[i] < end && w.next(&d.script[at[i]%len(d.script)]) {
				at[i], moved = at[i]+1, true
			}
			if at[i] == end {
				at[i], left, moved = at[i]+1, left-1, true
			}
		}
		if !moved {
			return nil, fmt.Errorf("%w: the scripts of its devices wait for each other", ErrPlan)
		}
	}
	return w, nil
}

// next adds a command, unless it waits for another driver.
func (w *weaver) next(c *command) bool {
	a := hazard.Action{Name: c, Stream: c.on.number, Wait: hazard.None, Record: hazard.None}
	switch c.verb {
	case doTake:
		if w.turns[c.turn] == 0 {
			return false
		}
		w.turns[c.turn]--
		return true
	case doGive:
		w.turns[c.turn]++
		return true
	case doLaunch, doCopy:
		a.Accesses = c.touches()
	case doRecord:
		a.Record = w.number(c.event)
	case doWait:
		a.Wait = w.number(c.event)
	default:
		return true
	}
	w.actions = append(w.actions, a)
	return true
}

// number returns that of an event.
func (w *weaver) number(ev runtime.Event) int {
	n, known := w.events[ev]
	if !known {
		n = len(w.events)
		w.events[ev] = n
	}
	return n
}

// written returns what the drivers issue in two rounds that show everything that the plan does: two steps, or two runs that fill
// the pipeline and go on; the second one begins in the memory of the first. Errors: ErrPlan when drivers wait for each other.
func (e *Executor) written() (*weaver, error) {
	if e.order.plan.IsFlush() {
		return e.weave(2)
	}
	n := (e.order.long() + e.group - 1) / e.group * e.group
	if err := e.writeScripts(n, n); err != nil {
		return nil, err
	}
	defer func() {
		for _, d := range e.drivers {
			d.script = nil
		}
	}()
	return e.weave(1)
}

// prove proves that memory, of whatever device, is reused only behind its last user. With Pace, kernels touch nothing. Errors:
// ErrPlan, *executor.OrderError.
func (e *Executor) prove() error {
	if e.opt.Pace != nil {
		return nil
	}
	w, err := e.written()
	if err != nil {
		return err
	}
	return hazard.Check(w.actions, e.streams, len(w.events))
}
