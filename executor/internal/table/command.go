package table

import (
	"fmt"
	"unsafe"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/runtime"
)

// none marks the absence of an index.
const none = -1

// Device is a device of a plan, as tables name it.
type Device struct {
	Number  int // its number in the plan
	Process int // that has it
	Dev     runtime.Device
	// Recording takes what a dry run notes; nil outside of dry runs.
	Recording *Recording
}

// Queue is a stream of a driver, with a number among those of all devices. In a dry run its methods note commands (recording.go).
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

// Command is one thing that a driver does. Its row of the driver's table says in which task and for which minibatch.
type Command struct {
	Verb
	Prepared                // of a launch
	On       Queue          // that it is issued to, if it is
	Dst, Src runtime.Span   // of a copy
	To       *Device        // in whose arena dst is
	Channel  fmt.Stringer   // of a copy that is a message
	Event    runtime.Event  // recorded, or waited for; by the host, too
	Timed    bool           // nobody waits for the event
	Pages    []runtime.Span // of page-locked memory that the host reads, or writes
	Writes   bool
	Turn     chan struct{} // that is given or taken
	Way      int           // of a message between processes
	Work     hostTask      // of the host
	Stage    int           // for which the host works
	Slot     int           // of its staging memory, or the number of an op that is observed

	Played occasion   // in which periods
	Ahead  int        // played when the minibatch so many behind the row's own is in the run
	Link   SharedLink // played when this link changes its direction at the row's message; nil: always
	Step   int        // at the message before it (-1), or at the one behind it (1)
}

// SharedLink is a link that carries one message at a time.
type SharedLink interface {
	// Changes reports whether it changes its direction between a message and the one before it (step -1) or behind it (step 1) in a run.
	Changes(run *order.Bound, v order.Instance, step int) bool
}

// occasion says in which periods a command of a row is played.
type occasion uint8

const (
	InRun    occasion = iota // where the row's minibatch is in the run, or another one as ahead says
	Always                   // in all
	OrBehind                 // like inRun, and where the minibatch so many before the row's own, as ahead says, is in the run
	Never                    // in none: it holds the place of a command that other periods play
)

// Verb says what a command does.
type Verb uint8

const (
	DoLaunch Verb = iota
	DoCopy
	DoSend    // a message to another process
	DoReceive // likewise, from one
	DoRecord
	DoWait
	DoGive    // tell another driver that what it waits for was issued
	DoTake    // wait until another driver has said so
	DoWork    // of the host
	DoBegin   // a task
	DoEnd     // put an event behind it
	DoStart   // begin a task whose commands stand in several rows
	DoFinish  // put an event behind it
	DoAudit   // what an op has written; nothing outside of audits
	DoObserve // what an op has left
)

// hostTask is a kind of work of a driver's host.
type hostTask uint8

const (
	FillBatch hostTask = iota + 1
	FillAhead
	AwaitResult
	AwaitNorm
	FillUpdate
	StampStart
	StampEnd
)

// CommandKey tells commands apart: equal keys do the same.
type CommandKey struct {
	Verb
	id       int
	launch   any
	on       int
	dst, src runtime.Span
	to       *Device
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

func (c *Command) Key() CommandKey {
	k := CommandKey{
		Verb: c.Verb, id: c.ID, on: c.On.Number, dst: c.Dst, src: c.Src, to: c.To, channel: c.Channel, event: c.Event, pages: unsafe.SliceData(c.Pages),
		turn: c.Turn, way: c.Way, work: c.Work, stage: c.Stage, slot: c.Slot, played: c.Played, ahead: c.Ahead, link: c.Link, step: c.Step,
	}
	if c.ID == 0 {
		k.launch = c.Launch
	}
	return k
}
