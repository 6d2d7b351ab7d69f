package pipeline

import (
	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// queue is a stream of a driver, with a number among those of all devices. Its methods note commands in a dry run.
type queue struct {
	s      runtime.Stream
	of     *tableDevice
	number int
}

// prepared is a launch that is ready, and what it does to memory.
type prepared struct {
	runtime.Launch
	id       int // tells what a driver launches apart; 0: launches that are equal do the same
	accesses []hazard.Access
}

func (q queue) launch(l prepared) error {
	return q.of.recording.note(command{verb: doLaunch, on: q, prepared: l})
}

func (q queue) copy(dst, src runtime.Span) error {
	return q.of.recording.note(command{verb: doCopy, on: q, to: q.of, dst: dst, src: src})
}

// copyIf is copy of what a row has in some periods only (noteIf), recordIf likewise.
func (q queue) copyIf(plays bool, dst, src runtime.Span) error {
	return q.of.recording.noteIf(plays, command{verb: doCopy, on: q, to: q.of, dst: dst, src: src})
}

func (q queue) recordIf(plays bool, ev runtime.Event) error {
	return q.of.recording.noteIf(plays, command{verb: doRecord, on: q, event: ev})
}

func (q queue) record(ev runtime.Event) error {
	return q.of.recording.note(command{verb: doRecord, on: q, event: ev})
}

// recordTime is record of an event that nobody waits for: it tells when the stream came there.
func (q queue) recordTime(ev runtime.Event) error {
	return q.of.recording.note(command{verb: doRecord, on: q, event: ev, timed: true})
}

func (q queue) wait(ev runtime.Event) error {
	return q.of.recording.note(command{verb: doWait, on: q, event: ev})
}
