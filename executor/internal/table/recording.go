package table

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/order"
	"plimsoll/runtime"
)

// Recording notes the commands of a driver in a dry run, row by row and period by period.
type Recording struct {
	OpLaunches
	flush     bool // the plan has a flush: what is not played has no place
	Ahead     int  // what is noted is of a minibatch so many behind that of its task
	known     map[CommandKey]int32
	alike     map[CommandKey]int32 // templates
	Commands  []*Command           // by number
	templates []int32              // by number
	operands  [][]int64            // by number: what may differ in commands of one template
	Lists     [][]int32            // of numbers of commands, each once; the first one is empty
	byText    map[string]int32     // numbers of lists
	Done      [][]int32            // by row and period: the number of a list
	Before    []int32
	Opens     []RecordedOpening
	Behind    [][]int32 // by stage
	Slots     [][]int32 // by stage that is here: the slots of its latest weights, version by version
	At        *[]int32  // where commands are noted
	open      *int32    // in done: what is noted now, of which current is the list; nil: it is elsewhere
	current   []int32
}

// RecordedOpening lists the commands that stage the first batch of a stage, of an instance of its forward.
type RecordedOpening struct {
	order.Instance
	List []int32
}

// OpLaunches knows what launches of ops are for, by their numbers.
type OpLaunches interface {
	// Use returns the template that a launch shares with those of the same op elsewhere, and its own operands. false: it is not of an op.
	Use(id int) (template any, operands []int64, isOp bool)
	// Again returns the launch of the same op that works elsewhere.
	Again(id int, operands []int64) (Prepared, error)
}

// NewRecording returns one of so many rows and stages.
func NewRecording(ops OpLaunches, flush bool, rows, stages int) *Recording {
	return &Recording{
		OpLaunches: ops, flush: flush, known: map[CommandKey]int32{}, alike: map[CommandKey]int32{}, Lists: [][]int32{nil}, byText: map[string]int32{"": 0},
		Done: make([][]int32, rows), Behind: make([][]int32, stages), Slots: make([][]int32, stages),
	}
}

// Number returns the number of a command, the same for all commands that do the same.
func (r *Recording) Number(c Command) int32 {
	k := c.Key()
	n, ok := r.known[k]
	if !ok {
		own := c
		n = int32(len(r.Commands))
		r.known[k], r.Commands = n, append(r.Commands, &own)
		like, operands := r.split(&own, n)
		template, ok := r.alike[like]
		if !ok {
			template = int32(len(r.alike))
			r.alike[like] = template
		}
		r.templates, r.operands = append(r.templates, template), append(r.operands, operands)
	}
	return n
}

// split returns the part that a command shares with others of its template, and its operands. Where these are not known one by one,
// the command is its own operand.
func (r *Recording) split(c *Command, number int32) (like CommandKey, operands []int64) {
	like = c.Key()
	template, operands, isOp := r.Use(c.ID)
	switch {
	case c.Verb == DoLaunch && isOp:
		like.id, like.launch = 0, template
		return like, operands
	case c.Verb == DoCopy:
		operands = []int64{like.dst.Offset, like.src.Offset, int64(like.played)}
		like.dst.Offset, like.src.Offset, like.played = 0, 0, InRun
		return like, operands
	}
	return CommandKey{Verb: c.Verb, on: c.On.Number}, []int64{int64(number)}
}

// make returns a command of the template of another one, with other operands.
func (r *Recording) make(like *Command, operands []int64) (*Command, error) {
	c := *like
	switch _, _, isOp := r.Use(c.ID); {
	case c.Verb == DoLaunch && isOp:
		var err error
		if c.Prepared, err = r.Again(c.ID, operands); err != nil {
			return nil, err
		}
	case c.Verb == DoCopy:
		c.Dst.Offset, c.Src.Offset, c.Played = operands[0], operands[1], occasion(operands[2])
	default:
		return nil, fmt.Errorf("BUG: a command that is known as a whole is to be made of parts")
	}
	return r.Commands[r.Number(c)], nil
}

// Row lets what follows be noted in a row, for a minibatch of a period. Nobody plays what is before the first minibatch.
func (r *Recording) Row(i, period int) {
	r.Close()
	if period < 0 {
		r.At = new([]int32)
		return
	}
	for len(r.Done[i]) <= period {
		r.Done[i] = append(r.Done[i], 0)
	}
	r.open = &r.Done[i][period]
	r.current = append(r.current[:0], r.Lists[*r.open]...)
	r.At = &r.current
}

// Close ends what is noted in a row.
func (r *Recording) Close() {
	if r.open == nil {
		return
	}
	text := cycle.Text(r.current)
	n, have := r.byText[text]
	if !have {
		n = int32(len(r.Lists))
		r.byText[text], r.Lists = n, append(r.Lists, slices.Clone(r.current))
	}
	*r.open, r.open = n, nil
}

// List returns commands by their numbers.
func (r *Recording) List(numbers []int32) []*Command {
	list := make([]*Command, len(numbers))
	for i, n := range numbers {
		list[i] = r.Commands[n]
	}
	return list
}

// Note adds a command.
func (r *Recording) Note(c Command) {
	if r.Ahead > 0 {
		c.Ahead = r.Ahead
	}
	*r.At = append(*r.At, r.Number(c))
}

// noteIf adds a command that a row has in some periods only. In others it holds the command's place, so that all are of one shape.
func (r *Recording) noteIf(plays bool, c Command) {
	if !plays && r.flush {
		return
	}
	if !plays {
		c.Played = Never
	}
	r.Note(c)
}

func (q Queue) Launch(l Prepared) {
	q.Of.Recording.Note(Command{Verb: DoLaunch, On: q, Prepared: l})
}

func (q Queue) Copy(dst, src runtime.Span) {
	q.Of.Recording.Note(Command{Verb: DoCopy, On: q, To: q.Of, Dst: dst, Src: src})
}

// CopyIf is copy of what a row has in some periods only (noteIf), recordIf likewise.
func (q Queue) CopyIf(plays bool, dst, src runtime.Span) {
	q.Of.Recording.noteIf(plays, Command{Verb: DoCopy, On: q, To: q.Of, Dst: dst, Src: src})
}

func (q Queue) RecordIf(plays bool, ev runtime.Event) {
	q.Of.Recording.noteIf(plays, Command{Verb: DoRecord, On: q, Event: ev})
}

func (q Queue) Record(ev runtime.Event) {
	q.Of.Recording.Note(Command{Verb: DoRecord, On: q, Event: ev})
}

// RecordTime is record of an event that nobody waits for: it tells when the stream came there.
func (q Queue) RecordTime(ev runtime.Event) {
	q.Of.Recording.Note(Command{Verb: DoRecord, On: q, Event: ev, Timed: true})
}

func (q Queue) Wait(ev runtime.Event) {
	q.Of.Recording.Note(Command{Verb: DoWait, On: q, Event: ev})
}
