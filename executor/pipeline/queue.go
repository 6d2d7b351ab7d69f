package pipeline

import (
	"plimsoll/runtime"
)

// queue is a stream, of which a rehearsal issues nothing.
type queue struct {
	s   runtime.Stream
	off *bool
}

func (q queue) launch(l runtime.Launch) error {
	if *q.off {
		return nil
	}
	return q.s.Launch(l)
}

func (q queue) copy(dst, src runtime.Span) error {
	if *q.off {
		return nil
	}
	return q.s.Copy(dst, src)
}

func (q queue) send(peer runtime.Device, dst, src runtime.Span) error {
	if *q.off {
		return nil
	}
	return q.s.CopyPeer(peer, dst, src)
}

func (q queue) record(ev runtime.Event) error {
	if *q.off {
		return nil
	}
	return q.s.Record(ev)
}

func (q queue) wait(ev runtime.Event) error {
	if *q.off {
		return nil
	}
	return q.s.Wait(ev)
}
