package pipeline

import (
	"fmt"
	"plimsoll/executor/internal/cycle"
	"slices"
)

// recording is what a driver does in a dry run, row by row and period by period.
type recording struct {
	OpLaunches
	flush     bool // the plan has a flush: what is not played has no place
	ahead     int  // what is noted is of a minibatch so many behind that of its task
	known     map[commandKey]int32
	alike     map[commandKey]int32 // templates
	commands  []*command           // by number
	templates []int32              // by number
	operands  [][]int64            // by number: what may differ in commands of one template
	lists     [][]int32            // of numbers of commands, each once; the first one is empty
	byText    map[string]int32     // numbers of lists
	done      [][]int32            // by row and period: the number of a list
	before    []int32
	opens     []recordedOpening
	behind    [][]int32 // by stage
	slots     [][]int32 // by stage that is here: the slots of its latest weights, version by version
	at        *[]int32  // where commands are noted
	open      *int32    // in done: what is noted now, of which current is the list; nil: it is elsewhere
	current   []int32
}

// recordedOpening is what stages the first batch of a stage, of an instance of its forward.
type recordedOpening struct {
	instance
	list []int32
}

// OpLaunches knows what launches of ops are for, by their numbers.
type OpLaunches interface {
	// Use returns the template that a launch shares with those of the same op elsewhere, and its own operands. false: it is not of an op.
	Use(id int) (template any, operands []int64, isOp bool)
	// Again returns the launch of the same op that works elsewhere.
	Again(id int, operands []int64) (prepared, error)
}

// newRecording returns one of so many rows and stages.
func newRecording(ops OpLaunches, flush bool, rows, stages int) *recording {
	return &recording{
		OpLaunches: ops, flush: flush, known: map[commandKey]int32{}, alike: map[commandKey]int32{}, lists: [][]int32{nil}, byText: map[string]int32{"": 0},
		done: make([][]int32, rows), behind: make([][]int32, stages), slots: make([][]int32, stages),
	}
}

// number returns that of a command, the same for all that do the same.
func (r *recording) number(c command) int32 {
	k := c.key()
	n, ok := r.known[k]
	if !ok {
		own := c
		n = int32(len(r.commands))
		r.known[k], r.commands = n, append(r.commands, &own)
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

// split returns what a command has in common with those of its template, and its operands. Where these are not known one by one, the
// command is its own operand.
func (r *recording) split(c *command, number int32) (like commandKey, operands []int64) {
	like = c.key()
	template, operands, isOp := r.Use(c.id)
	switch {
	case c.verb == doLaunch && isOp:
		like.id, like.launch = 0, template
		return like, operands
	case c.verb == doCopy:
		operands = []int64{like.dst.Offset, like.src.Offset, int64(like.played)}
		like.dst.Offset, like.src.Offset, like.played = 0, 0, inRun
		return like, operands
	}
	return commandKey{verb: c.verb, on: c.on.number}, []int64{int64(number)}
}

// make returns a command of the template of another one, with other operands.
func (r *recording) make(like *command, operands []int64) (*command, error) {
	c := *like
	switch _, _, isOp := r.Use(c.id); {
	case c.verb == doLaunch && isOp:
		var err error
		if c.prepared, err = r.Again(c.id, operands); err != nil {
			return nil, err
		}
	case c.verb == doCopy:
		c.dst.Offset, c.src.Offset, c.played = operands[0], operands[1], occasion(operands[2])
	default:
		return nil, fmt.Errorf("BUG: a command that is known as a whole is to be made of parts")
	}
	return r.commands[r.number(c)], nil
}

// row lets what follows be noted in a row, for a minibatch of a period. Nobody plays what is before the first minibatch.
func (r *recording) row(i, period int) {
	r.close()
	if period < 0 {
		r.at = new([]int32)
		return
	}
	for len(r.done[i]) <= period {
		r.done[i] = append(r.done[i], 0)
	}
	r.open = &r.done[i][period]
	r.current = append(r.current[:0], r.lists[*r.open]...)
	r.at = &r.current
}

// close ends what is noted in a row.
func (r *recording) close() {
	if r.open == nil {
		return
	}
	text := cycle.Text(r.current)
	n, have := r.byText[text]
	if !have {
		n = int32(len(r.lists))
		r.byText[text], r.lists = n, append(r.lists, slices.Clone(r.current))
	}
	*r.open, r.open = n, nil
}

// list returns commands by their numbers.
func (r *recording) list(numbers []int32) []*command {
	list := make([]*command, len(numbers))
	for i, n := range numbers {
		list[i] = r.commands[n]
	}
	return list
}

// note adds a command.
func (r *recording) note(c command) error {
	if r.ahead > 0 {
		c.ahead = r.ahead
	}
	*r.at = append(*r.at, r.number(c))
	return nil
}

// noteIf adds a command that a row has in some periods only. In others it holds the command's place, so that all are of one shape.
func (r *recording) noteIf(plays bool, c command) error {
	if !plays && r.flush {
		return nil
	}
	if !plays {
		c.played = never
	}
	return r.note(c)
}
