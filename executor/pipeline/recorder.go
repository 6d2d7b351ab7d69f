package pipeline

import (
	"errors"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
)

// recorded is how many of its latest tasks a driver can tell apart after a failure; more are never unfinished, as it issues few
// minibatches ahead of the device.
const recorded = 256

func (m *record) failed() bool { return m.set && (!m.issued || m.end.Synchronize() != nil) }

// open makes the events.
func (t *recorder) open(dev runtime.Device) error {
	t.marks = make([]record, recorded)
	for i := range t.marks {
		if err := makeEvents(dev, &t.marks[i].end); err != nil {
			return err
		}
	}
	return nil
}

// begin forgets the tasks of the run before.
func (t *recorder) begin() {
	t.begun = nil
	for i := range t.marks {
		t.marks[i].set = false
	}
}

// start notes a task that is issued step by step, which is added when it ends: what fails before may be a transfer between.
func (t *recorder) start(v order.Instance, done int) {
	t.task = v
	t.task.Minibatch += done
	t.begun = &t.task
}

// around returns the task that is issued step by step, of a minibatch behind so many others; false: none is.
func (t *recorder) around(done int) (v order.Instance, inside bool) {
	if t.begun == nil {
		return v, false
	}
	v = *t.begun
	v.Minibatch -= done
	return v, true
}

// add adds a task that is about to be issued, of a minibatch behind so many others.
func (t *recorder) add(v order.Instance, done int) *record {
	m := &t.marks[t.next%recorded]
	m.Instance, m.set, m.issued = v, true, false
	m.Minibatch += done
	t.next++
	return m
}

// close puts the event behind a task.
func (m *record) close(q table.Queue) error {
	if err := q.S.Record(m.end); err != nil {
		return err
	}
	m.issued = true
	return nil
}

// first returns the earliest task whose work did not end.
func (t *recorder) first() (order.Instance, bool) {
	for i := range t.marks {
		m := &t.marks[(t.next+i)%recorded]
		if m.failed() {
			return m.Instance, true
		}
	}
	if t.begun != nil {
		return *t.begun, true
	}
	return order.Instance{}, false
}

// blame names the task whose work failed, when that is not the one that noticed. All drivers have ended.
func (e *Executor) blame(err error) error {
	var failed *runtime.StreamError
	if !errors.As(err, &failed) {
		return err
	}
	for inner := failed; errors.As(inner.Err, &inner); {
		failed = inner
	}
	for _, d := range e.own() {
		if d.Dev.Info().Name != failed.Device {
			continue
		}
		t := &TaskError{Device: d.Number, Task: "an update", Minibatch: e.done, Err: failed}
		if v, ok := d.recorder.first(); ok {
			t.Task, t.Minibatch = v.Name(), v.Minibatch
		}
		return t
	}
	return err
}
