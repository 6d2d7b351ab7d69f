package pipeline

import (
	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// queue is a stream of a driver, with a number among those of all devices. In a dry run nothing is issued; what would be is noted
// when the order is proved.
type queue struct {
	s      runtime.Stream
	of     *driver
	number int
}

// newQueue makes a stream.
func (d *driver) newQueue(name string) (q queue, err error) {
	q = queue{of: d, number: d.e.streams}
	d.e.streams++
	q.s, err = d.dev.NewStream(name)
	return q, err
}

// prepared is a launch that is ready, and what it does to memory.
type prepared struct {
	runtime.Launch
	accesses []hazard.Access
}

func (q queue) launch(l prepared) error {
	if q.of.dryRun {
		q.note(l.Launch, l.accesses, nil, nil)
		return nil
	}
	return q.s.Launch(l.Launch)
}

func (q queue) copy(dst, src runtime.Span) error {
	if q.of.dryRun {
		q.noteCopy(q.of, dst, src)
		return nil
	}
	return q.s.Copy(dst, src)
}

func (q queue) send(to *driver, dst, src runtime.Span) error {
	if q.of.dryRun {
		q.noteCopy(to, dst, src)
		return nil
	}
	return q.s.CopyPeer(to.dev, dst, src)
}

func (q queue) record(ev runtime.Event) error {
	if q.of.dryRun {
		q.note(nil, nil, nil, ev)
		return nil
	}
	return q.s.Record(ev)
}

func (q queue) wait(ev runtime.Event) error {
	if q.of.dryRun {
		q.note(nil, nil, ev, nil)
		return nil
	}
	return q.s.Wait(ev)
}
