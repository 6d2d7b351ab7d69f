package table

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/runtime"
)

// Verbs are the names of what commands do, in errors.
var Verbs = [...]string{DoCopy: "a copy", DoSend: "a message", DoReceive: "a message", DoRecord: "record", DoWait: "wait", DoGive: "message to another device", DoTake: "message of another device", DoWork: "work of the host", DoEnd: "end"}

// worksOn returns the host's accesses to page-locked memory of a device.
func (c *Command) worksOn(device int) (all []hazard.Access) {
	for _, span := range c.Pages {
		if span.Bytes > 0 {
			all = append(all, hazard.Access{Device: device, Span: span, Write: c.Writes})
		}
	}
	return all
}

// Played is a command that is issued for a minibatch.
type Played struct {
	*Command
	Of order.Instance
	By *Device
}

// String names a command that is issued: what it is, in which task.
func (c *Played) String() string {
	v, what := c.Of, Verbs[c.Verb]
	if c.Launch != nil {
		what = c.Kernel()
	}
	return fmt.Sprintf("%s in %s of minibatch %d on device %d", what, v.Name(), v.Minibatch, c.By.Number)
}

// Touches returns the accesses of a command to memory.
func (c *Command) Touches() []hazard.Access {
	if c.Verb == DoCopy {
		return []hazard.Access{{Device: c.On.Of.Number, Span: c.Src}, {Device: c.To.Number, Span: c.Dst, Write: true}}
	}
	return c.Accesses
}

// weaver puts the commands of all drivers into one order that any run may have, and proves that whatever matters of it is so in every
// run. Each driver has a vector clock: how many commands of every driver are certain to have been issued. Turns carry it from one
// driver to another. It remembers a command as long as another one may have no order with it, not all that are issued.
type weaver struct {
	devices []*Device
	issues  []*issues // by driver
	clock   [][]int   // by driver
	add     adder
	queued  [][]queuedAction       // by stream, those of hosts too: what is issued and must wait for something that is not added yet
	mail    map[int][]*eventRecord // by way: of the messages that were sent and not received
	events  map[eventKey]*mark
	turns   map[chan struct{}][][]int // that were given and not yet taken: the clocks that they carry
	given   map[chan struct{}]int     // at the beginning
	givers  map[chan struct{}]Played  // who gave a turn last
	streams int                       // of the devices; the hosts of the drivers follow
	worked  []issued                  // by driver: what its host has done
	seen    []int                     // by stream: how much of that its latest command is behind
}

// adder takes actions in an order in which they may run, each with the records that it waits for and makes; nil: none.
type adder func(a *hazard.Action, wait, record *hazard.Event) error

// issues are the commands that a driver issues, some at a time.
type issues struct {
	next func() ([]Played, bool)
	some []Played
	over bool
}

// first returns the next command; nil: there is none.
func (x *issues) first() *Played {
	for len(x.some) == 0 && !x.over {
		var more bool
		x.some, more = x.next()
		x.over = !more
	}
	if len(x.some) == 0 {
		return nil
	}
	return &x.some[0]
}

// eventKey tells events apart: the two ends of a channel between processes have one each.
type eventKey struct {
	runtime.Event
	process int
}

// queuedAction is an action of a stream, of which a message may be sent or received.
type queuedAction struct {
	hazard.Action
	Verb
	way        int
	wait, made *eventRecord
}

// eventRecord is a record of an event.
type eventRecord struct {
	hazard.Event
	added bool
}

// event returns the event of the record; nil: it is none.
func (r *eventRecord) event() *hazard.Event {
	if r == nil {
		return nil
	}
	return &r.Event
}

// issued is the work that a host has done: all later commands of the host come after it.
type issued struct {
	record *eventRecord
	times  int
}

// mark is the state of an event among the issued commands: its record and its waits.
type mark struct {
	record *eventRecord // its latest; nil: it has none
	latest Played       // that has recorded it; nil: none has
	by, at int          // its driver, and the clock there
	waits  []Played
	waited []int // by driver: the clock of its latest wait
}

// Weave adds what the drivers issue. Errors: ErrPlan when drivers wait for each other, or when one may issue a wait before the other has
// issued the record that it is for; that of add.
func (p Prover) Weave(sources []iter.Seq[[]Played], add adder) error {
	n := len(p.Devices)
	w := &weaver{streams: p.Streams, add: add, worked: make([]issued, n), seen: make([]int, p.Streams), queued: make([][]queuedAction, p.Streams+n), mail: map[int][]*eventRecord{}, devices: p.Devices, events: map[eventKey]*mark{}, turns: map[chan struct{}][][]int{}, given: map[chan struct{}]int{}, givers: map[chan struct{}]Played{}}
	for _, source := range sources {
		next, stop := iter.Pull(source)
		defer stop()
		w.issues, w.clock = append(w.issues, &issues{next: next}), append(w.clock, make([]int, n))
	}
	for _, turn := range p.Given {
		w.turns[turn], w.given[turn] = [][]int{make([]int, n)}, 1
	}
	for moved := true; moved; {
		moved = false
		for i := range p.Devices {
			went, err := w.goOn(i)
			if err != nil {
				return err
			}
			moved = moved || went
		}
		flowed, err := w.flow()
		if err != nil {
			return err
		}
		moved = moved || flowed
	}
	return w.ended()
}

// goOn lets a driver issue some commands, unless the next one waits for another driver.
func (w *weaver) goOn(i int) (moved bool, err error) {
	const most = 256 // at once: so no driver is far ahead of others
	for n := range most {
		c := w.issues[i].first()
		if c == nil {
			return n > 0, nil
		}
		able, err := w.next(i, c)
		if err != nil || !able {
			return n > 0, err
		}
		w.issues[i].some = w.issues[i].some[1:]
	}
	return true, nil
}

// List returns all that a segment of so many minibatches plays.
func (t *Table) List(by *Device, minibatches int) (all []Played) {
	_ = t.Segment(order.NewBound(minibatches), false, func(c *Command, v *order.Instance) error {
		all = append(all, Played{c, *v, by})
		return nil
	})
	return all
}

// errEnough ends a sequence that nobody reads on.
var errEnough = errors.New("enough")

// Plays goes through all that segments of so many minibatches each play, some commands at a time. Each other one finds its first batch
// staged.
func (t *Table) Plays(by *Device, segments []int) iter.Seq[[]Played] {
	return func(yield func([]Played) bool) {
		const most = 256
		some := make([]Played, 0, most)
		for i, n := range segments {
			err := t.Segment(order.NewBound(n), i%2 == 1, func(c *Command, v *order.Instance) error {
				if some = append(some, Played{c, *v, by}); len(some) < most {
					return nil
				}
				if !yield(some) {
					return errEnough
				}
				some = some[:0]
				return nil
			})
			if err != nil {
				return
			}
		}
		yield(some)
	}
}

// ended returns an error when drivers have commands left, or not all that they tell each other is heard.
func (w *weaver) ended() error {
	var left []string
	for i, d := range w.devices {
		if c := w.issues[i].first(); c != nil {
			text := fmt.Sprintf("device %d: waits for the %v", d.Number, c)
			if giver, ok := w.givers[c.Turn]; ok {
				text += fmt.Sprintf(", which was given last by the %v", &giver)
			}
			left = append(left, text)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: the tables of its devices wait for each other:\n%s", order.ErrPlan, strings.Join(left, "\n"))
	}
	for _, list := range w.queued {
		if len(list) > 0 {
			return fmt.Errorf("%w: streams of its devices wait for each other: the %v is for something that waits for it", order.ErrPlan, list[0].Name)
		}
	}
	for way, list := range w.mail {
		if len(list) > 0 {
			return fmt.Errorf("%w: %d messages of way %d between processes are sent and not received", order.ErrPlan, len(list), way)
		}
	}
	for turn, clocks := range w.turns {
		if n := len(clocks) - w.given[turn]; n != 0 {
			return fmt.Errorf("%w: %d messages between its devices are sent and not received", order.ErrPlan, n)
		}
	}
	return nil
}

// next adds a command of a driver, unless that waits for another one.
func (w *weaver) next(i int, c *Played) (able bool, err error) {
	clock := w.clock[i]
	if c.Verb == DoTake && len(w.turns[c.Turn]) == 0 {
		return false, nil
	}
	clock[i]++
	a := queuedAction{Action: hazard.Action{Stream: c.On.Number}, Verb: c.Verb, way: c.Way}
	switch c.Verb {
	case DoTake:
		for k, n := range w.turns[c.Turn][0] {
			clock[k] = max(clock[k], n)
		}
		w.turns[c.Turn] = w.turns[c.Turn][1:]
		return true, nil
	case DoGive:
		w.turns[c.Turn], w.givers[c.Turn] = append(w.turns[c.Turn], slices.Clone(clock)), *c
		return true, nil
	case DoLaunch, DoCopy, DoReceive:
		a.Name, a.Accesses = c.named(), c.Touches()
	case DoSend:
		a.Name, a.Accesses, a.made = c.named(), c.Touches(), new(eventRecord)
	case DoRecord:
		a.made, err = w.record(i, c)
	case DoWait:
		a.wait, err = w.wait(i, c)
	case DoWork:
		return true, w.work(i, c)
	default:
		return true, nil
	}
	w.behindWork(i, c.On.Number)
	w.issue(a)
	return true, err
}

// named returns a copy that names a command when its driver no longer issues it.
func (c *Played) named() *Played {
	own := *c
	return &own
}

// work adds what the host does with page-locked memory: it waits until streams have done with that.
func (w *weaver) work(i int, c *Played) error {
	if len(c.Pages) == 0 {
		return nil
	}
	a := queuedAction{Action: hazard.Action{Name: c.named(), Stream: w.streams + i}, made: new(eventRecord)}
	var err error
	if a.wait, err = w.wait(i, c); err != nil {
		return err
	}
	a.Accesses = c.worksOn(w.devices[i].Number)
	w.worked[i] = issued{a.made, w.worked[i].times + 1}
	w.issue(a)
	return nil
}

// behindWork lets what is issued to a stream wait for what the host of its driver has done before it was issued.
func (w *weaver) behindWork(i, stream int) {
	if w.seen[stream] == w.worked[i].times {
		return
	}
	w.seen[stream] = w.worked[i].times
	w.issue(queuedAction{Action: hazard.Action{Name: HostWork{}, Stream: stream}, wait: w.worked[i].record})
}

// HostWork names that a stream's command was issued behind what the host has done.
type HostWork struct{}

func (HostWork) String() string { return "the order of issue" }

// issue adds an action to its stream.
func (w *weaver) issue(a queuedAction) { w.queued[a.Stream] = append(w.queued[a.Stream], a) }

// flow adds what streams may do, each as far as what it waits for is added; false: none may do anything. Errors: that of add.
func (w *weaver) flow() (moved bool, err error) {
	for again := true; again; {
		again = false
		for s := range w.queued {
			n, able := 0, true
			for n < len(w.queued[s]) && able {
				if able, err = w.flowOne(&w.queued[s][n]); err != nil {
					return false, err
				}
				if able {
					n++
				}
			}
			w.queued[s] = slices.Delete(w.queued[s], 0, n)
			again = again || n > 0
		}
		moved = moved || again
	}
	return moved, nil
}

// flowOne adds an action, if what it waits for is added. Error: that of add.
func (w *weaver) flowOne(a *queuedAction) (able bool, err error) {
	if a.Verb == DoReceive {
		if len(w.mail[a.way]) == 0 {
			return false, nil
		}
		a.wait, w.mail[a.way] = w.mail[a.way][0], w.mail[a.way][1:]
	}
	if a.wait != nil && !a.wait.added {
		return false, nil
	}
	if a.made != nil {
		a.made.added = true
	}
	if a.Verb == DoSend {
		w.mail[a.way] = append(w.mail[a.way], a.made)
	}
	return true, w.add(&a.Action, a.wait.event(), a.made.event())
}

// mark returns the mark of an event of a driver.
func (w *weaver) mark(i int, ev runtime.Event) *mark {
	k := eventKey{ev, w.devices[i].Process}
	m := w.events[k]
	if m == nil {
		m = &mark{waits: make([]Played, len(w.devices)), waited: make([]int, len(w.devices))}
		w.events[k] = m
	}
	return m
}

// record proves that all earlier waits for an event are issued before this record of it.
func (w *weaver) record(i int, c *Played) (*eventRecord, error) {
	m := w.mark(i, c.Event)
	for k, n := range m.waited {
		if k != i && w.clock[i][k] < n {
			return nil, fmt.Errorf("%w: nothing lets the %v be issued before the %v, which it is not for", order.ErrPlan, &m.waits[k], c)
		}
	}
	m.record, m.latest, m.by, m.at = new(eventRecord), *c, i, w.clock[i][i]
	return m.record, nil
}

// wait proves that the record that a wait is for is issued before it.
func (w *weaver) wait(i int, c *Played) (*eventRecord, error) {
	m := w.mark(i, c.Event)
	if m.latest.Command != nil && m.by != i && w.clock[i][m.by] < m.at {
		return nil, fmt.Errorf("%w: nothing lets the %v be issued before the %v, which is for it", order.ErrPlan, &m.latest, c)
	}
	m.waits[i], m.waited[i] = *c, w.clock[i][i]
	return m.record, nil
}

// Prover proves the tables of all devices together.
type Prover struct {
	Devices []*Device
	Streams int             // of all devices; their hosts follow
	Given   []chan struct{} // turns that are given before a run
}

// Prove proves, of what the devices issue and of all its commands, that memory is reused only behind its last user. Errors: ErrPlan,
// *hazard.OrderError.
func (p Prover) Prove(sources []iter.Seq[[]Played], commands []iter.Seq[*Command]) error {
	c := hazard.NewChecker(p.Streams + len(p.Devices))
	for i, list := range commands {
		for x := range list {
			x.Expect(c, p.Devices[i].Number, p.Streams+i)
		}
	}
	return p.Weave(sources, c.Add)
}

// Expect tells a checker what a command of a device uses, whose host has a number behind those of all streams.
func (c *Command) Expect(checker *hazard.Checker, device, host int) {
	if c.Verb == DoWork {
		checker.Expect(host, c.worksOn(device))
		return
	}
	checker.Expect(c.On.Number, c.Touches())
}
