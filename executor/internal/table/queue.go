package table

import (
	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// Queue is a stream of a driver, with a number among those of all devices. Its methods note commands in a dry run.
type Queue struct {
	S      runtime.Stream
	Of     *Device
	Number int
}

// Prepared is a launch that is ready, and what it does to memory.
type Prepared struct {
	runtime.Launch
	ID       int // tells what a driver launches apart; 0: launches that are equal do the same
	Accesses []hazard.Access
}

func (q Queue) Launch(l Prepared) error {
	return q.Of.Recording.Note(Command{Verb: DoLaunch, On: q, Prepared: l})
}

func (q Queue) Copy(dst, src runtime.Span) error {
	return q.Of.Recording.Note(Command{Verb: DoCopy, On: q, To: q.Of, Dst: dst, Src: src})
}

// CopyIf is copy of what a row has in some periods only (noteIf), recordIf likewise.
func (q Queue) CopyIf(plays bool, dst, src runtime.Span) error {
	return q.Of.Recording.noteIf(plays, Command{Verb: DoCopy, On: q, To: q.Of, Dst: dst, Src: src})
}

func (q Queue) RecordIf(plays bool, ev runtime.Event) error {
	return q.Of.Recording.noteIf(plays, Command{Verb: DoRecord, On: q, Event: ev})
}

func (q Queue) Record(ev runtime.Event) error {
	return q.Of.Recording.Note(Command{Verb: DoRecord, On: q, Event: ev})
}

// RecordTime is record of an event that nobody waits for: it tells when the stream came there.
func (q Queue) RecordTime(ev runtime.Event) error {
	return q.Of.Recording.Note(Command{Verb: DoRecord, On: q, Event: ev, Timed: true})
}

func (q Queue) Wait(ev runtime.Event) error {
	return q.Of.Recording.Note(Command{Verb: DoWait, On: q, Event: ev})
}
