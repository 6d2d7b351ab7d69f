package pipeline

import (
	"fmt"
	"unsafe"

	"plimsoll/runtime"
)

// command is one thing that a driver does. Its row of the driver's table says in which task and for which minibatch.
type command struct {
	verb
	prepared                // of a launch
	on       queue          // that it is issued to, if it is
	dst, src runtime.Span   // of a copy
	to       *tableDevice   // in whose arena dst is
	channel  fmt.Stringer   // of a copy that is a message
	event    runtime.Event  // recorded, or waited for; by the host, too
	timed    bool           // nobody waits for the event
	pages    []runtime.Span // of page-locked memory that the host reads, or writes
	writes   bool
	turn     chan struct{} // that is given or taken
	way      int           // of a message between processes
	work     hostTask      // of the host
	stage    int           // for which the host works
	slot     int           // of its staging memory, or the number of an op that is observed

	played occasion   // in which periods
	ahead  int        // played when the minibatch so many behind the row's own is in the run
	link   SharedLink // played when this link changes its direction at the row's message; nil: always
	step   int        // at the message before it (-1), or at the one behind it (1)
}

// SharedLink is a link that carries one message at a time.
type SharedLink interface {
	// Changes reports whether it changes its direction between a message and the one before it (step -1) or behind it (step 1) in a run.
	Changes(run *bound, v instance, step int) bool
}

// occasion says in which periods a command of a row is played.
type occasion uint8

const (
	inRun    occasion = iota // where the row's minibatch is in the run, or another one as ahead says
	always                   // in all
	orBehind                 // like inRun, and where the minibatch so many before the row's own, as ahead says, is in the run
	never                    // in none: it holds the place of a command that other periods play
)

// verb says what a command does.
type verb uint8

const (
	doLaunch verb = iota
	doCopy
	doSend    // a message to another process
	doReceive // likewise, from one
	doRecord
	doWait
	doGive    // tell another driver that what it waits for was issued
	doTake    // wait until another driver has said so
	doWork    // of the host
	doBegin   // a task
	doEnd     // put an event behind it
	doStart   // begin a task whose commands stand in several rows
	doFinish  // put an event behind it
	doAudit   // what an op has written; nothing outside of audits
	doObserve // what an op has left
)

// hostTask is what the host of a driver does.
type hostTask uint8

const (
	fillBatch hostTask = iota + 1
	fillAhead
	awaitResult
	awaitNorm
	fillUpdate
	stampStart
	stampEnd
)

// commandKey tells commands apart: equal keys do the same.
type commandKey struct {
	verb
	id       int
	launch   any
	on       int
	dst, src runtime.Span
	to       *tableDevice
	channel  fmt.Stringer
	event    runtime.Event
	pages    *runtime.Span
	turn     chan struct{}
	way      int
	work     hostTask
	stage    int
	slot     int
	played   occasion
	ahead    int
	link     SharedLink
	step     int
}

func (c *command) key() commandKey {
	k := commandKey{
		verb: c.verb, id: c.id, on: c.on.number, dst: c.dst, src: c.src, to: c.to, channel: c.channel, event: c.event, pages: unsafe.SliceData(c.pages),
		turn: c.turn, way: c.way, work: c.work, stage: c.stage, slot: c.slot, played: c.played, ahead: c.ahead, link: c.link, step: c.step,
	}
	if c.id == 0 {
		k.launch = c.Launch
	}
	return k
}
