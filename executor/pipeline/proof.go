package pipeline

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// verbs are the names of what commands do, in errors.
var verbs = [...]string{doCopy: "a copy", doSend: "a message", doReceive: "a message", doRecord: "record", doWait: "wait", doGive: "message to another device", doTake: "message of another device", doWork: "work of the host", doEnd: "end"}

// worksOn returns what the host does to page-locked memory of a device.
func (c *command) worksOn(device int) (all []hazard.Access) {
	for _, span := range c.pages {
		if span.Bytes > 0 {
			all = append(all, hazard.Access{Device: device, Span: span, Write: c.writes})
		}
	}
	return all
}

// played is a command that is issued for a minibatch.
type played struct {
	*command
	of instance
	by *driver
}

// String names a command that is issued: what it is, in which task.
func (c *played) String() string {
	v, what := c.of, verbs[c.verb]
	if c.Launch != nil {
		what = c.Kernel()
	}
	return fmt.Sprintf("%s in %s of minibatch %d on device %d", what, v.name(), v.minibatch, c.by.device)
}

// touches returns what a command does to memory.
func (c *command) touches() []hazard.Access {
	if c.verb == doCopy {
		return []hazard.Access{{Device: c.on.of.device, Span: c.src}, {Device: c.to.device, Span: c.dst, Write: true}}
	}
	return c.accesses
}

// weaver puts the commands of all drivers into one order that any run may have, and proves that whatever matters of it is so in every
// run: each driver has a vector clock, how many commands of every driver are certain to have been issued, which turns carry from one
// driver to another. It remembers a command as long as another one may have no order with it, not all that are issued.
type weaver struct {
	drivers []*driver
	issues  []*issues // by driver
	clock   [][]int   // by driver
	add     adder
	queued  [][]queuedAction           // by stream, those of hosts too: what is issued and must wait for something that is not added yet
	mail    map[*remote][]*eventRecord // by way: of the messages that were sent and not received
	events  map[eventKey]*mark
	turns   map[chan struct{}][][]int // that were given and not yet taken: the clocks that they carry
	given   map[chan struct{}]int     // at the beginning
	givers  map[chan struct{}]played  // who gave a turn last
	streams int                       // of the devices; the hosts of the drivers follow
	worked  []issued                  // by driver: what its host has done
	seen    []int                     // by stream: how much of that its latest command is behind
}

// adder takes actions in an order in which they may run, each with the records that it waits for and makes; nil: none.
type adder func(a *hazard.Action, wait, record *hazard.Event) error

// issues is what a driver issues, some commands at a time.
type issues struct {
	next func() ([]played, bool)
	some []played
	over bool
}

// first returns the next command; nil: there is none.
func (x *issues) first() *played {
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
	verb
	way        *remote
	wait, made *eventRecord
}

// eventRecord is a record of an event.
type eventRecord struct {
	hazard.Event
	added bool
}

// event returns what it is of; nil: it is none.
func (r *eventRecord) event() *hazard.Event {
	if r == nil {
		return nil
	}
	return &r.Event
}

// issued is what a host has done: all that it issues is behind that.
type issued struct {
	record *eventRecord
	times  int
}

// mark is what has been issued of an event.
type mark struct {
	record *eventRecord // its latest; nil: it has none
	latest played       // that has recorded it; nil: none has
	by, at int          // its driver, and the clock there
	waits  []played
	waited []int // by driver: the clock of its latest wait
}

// weave adds what the drivers issue. Errors: ErrPlan when drivers wait for each other, or when one may issue a wait before the other has
// issued the record that it is for; that of add.
func (e *Executor) weave(sources []iter.Seq[[]played], add adder) error {
	n := len(e.drivers)
	w := &weaver{streams: e.streams, add: add, worked: make([]issued, n), seen: make([]int, e.streams), queued: make([][]queuedAction, e.streams+n), mail: map[*remote][]*eventRecord{}, drivers: e.drivers, events: map[eventKey]*mark{}, turns: map[chan struct{}][][]int{}, given: map[chan struct{}]int{}, givers: map[chan struct{}]played{}}
	for _, source := range sources {
		next, stop := iter.Pull(source)
		defer stop()
		w.issues, w.clock = append(w.issues, &issues{next: next}), append(w.clock, make([]int, n))
	}
	for _, l := range e.channels {
		for i := range l.blocks {
			if !l.asked {
				w.turns[l.free[i]], w.given[l.free[i]] = [][]int{make([]int, n)}, 1
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for i := range e.drivers {
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

// list returns all that a segment of so many minibatches plays.
func (t *table) list(by *driver, minibatches int) (all []played) {
	_ = t.segment(newBound(minibatches), false, func(c *command, v *instance) error {
		all = append(all, played{c, *v, by})
		return nil
	})
	return all
}

// plays goes through all that segments of so many minibatches each play, some commands at a time. Each other one finds its first batch
// staged.
func (t *table) plays(by *driver, segments []int) iter.Seq[[]played] {
	return func(yield func([]played) bool) {
		const most = 256
		some := make([]played, 0, most)
		for i, n := range segments {
			err := t.segment(newBound(n), i%2 == 1, func(c *command, v *instance) error {
				if some = append(some, played{c, *v, by}); len(some) < most {
					return nil
				}
				if !yield(some) {
					return ErrStopped
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
	for i, d := range w.drivers {
		if c := w.issues[i].first(); c != nil {
			text := fmt.Sprintf("device %d: waits for the %v", d.device, c)
			if giver, ok := w.givers[c.turn]; ok {
				text += fmt.Sprintf(", which was given last by the %v", &giver)
			}
			left = append(left, text)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: the tables of its devices wait for each other:\n%s", ErrPlan, strings.Join(left, "\n"))
	}
	for _, list := range w.queued {
		if len(list) > 0 {
			return fmt.Errorf("%w: streams of its devices wait for each other: the %v is for something that waits for it", ErrPlan, list[0].Name)
		}
	}
	for way, list := range w.mail {
		if len(list) > 0 {
			return fmt.Errorf("%w: %d messages of way %d between processes are sent and not received", ErrPlan, len(list), way.way)
		}
	}
	for turn, clocks := range w.turns {
		if n := len(clocks) - w.given[turn]; n != 0 {
			return fmt.Errorf("%w: %d messages between its devices are sent and not received", ErrPlan, n)
		}
	}
	return nil
}

// next adds a command of a driver, unless that waits for another one.
func (w *weaver) next(i int, c *played) (able bool, err error) {
	clock := w.clock[i]
	if c.verb == doTake && len(w.turns[c.turn]) == 0 {
		return false, nil
	}
	clock[i]++
	a := queuedAction{Action: hazard.Action{Stream: c.on.number}, verb: c.verb, way: c.way}
	switch c.verb {
	case doTake:
		for k, n := range w.turns[c.turn][0] {
			clock[k] = max(clock[k], n)
		}
		w.turns[c.turn] = w.turns[c.turn][1:]
		return true, nil
	case doGive:
		w.turns[c.turn], w.givers[c.turn] = append(w.turns[c.turn], slices.Clone(clock)), *c
		return true, nil
	case doLaunch, doCopy, doReceive:
		a.Name, a.Accesses = c.named(), c.touches()
	case doSend:
		a.Name, a.Accesses, a.made = c.named(), c.touches(), new(eventRecord)
	case doRecord:
		a.made, err = w.record(i, c)
	case doWait:
		a.wait, err = w.wait(i, c)
	case doWork:
		return true, w.work(i, c)
	default:
		return true, nil
	}
	w.behindWork(i, c.on.number)
	w.issue(a)
	return true, err
}

// named returns what names a command when it is no longer among those that its driver issues.
func (c *played) named() *played {
	own := *c
	return &own
}

// work adds what the host does with page-locked memory: it waits until streams have done with that.
func (w *weaver) work(i int, c *played) error {
	if len(c.pages) == 0 {
		return nil
	}
	a := queuedAction{Action: hazard.Action{Name: c.named(), Stream: w.streams + i}, made: new(eventRecord)}
	var err error
	if a.wait, err = w.wait(i, c); err != nil {
		return err
	}
	a.Accesses = c.worksOn(w.drivers[i].device)
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
	w.issue(queuedAction{Action: hazard.Action{Name: hostWork{}, Stream: stream}, wait: w.worked[i].record})
}

// hostWork names that a stream's command was issued behind what the host has done.
type hostWork struct{}

func (hostWork) String() string { return "the order of issue" }

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
	if a.verb == doReceive {
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
	if a.verb == doSend {
		w.mail[a.way] = append(w.mail[a.way], a.made)
	}
	return true, w.add(&a.Action, a.wait.event(), a.made.event())
}

// mark returns that of an event of a driver.
func (w *weaver) mark(i int, ev runtime.Event) *mark {
	k := eventKey{ev, w.drivers[i].process()}
	m := w.events[k]
	if m == nil {
		m = &mark{waits: make([]played, len(w.drivers)), waited: make([]int, len(w.drivers))}
		w.events[k] = m
	}
	return m
}

// record proves that all earlier waits for an event are issued before this record of it.
func (w *weaver) record(i int, c *played) (*eventRecord, error) {
	m := w.mark(i, c.event)
	for k, n := range m.waited {
		if k != i && w.clock[i][k] < n {
			return nil, fmt.Errorf("%w: nothing lets the %v be issued before the %v, which it is not for", ErrPlan, &m.waits[k], c)
		}
	}
	m.record, m.latest, m.by, m.at = new(eventRecord), *c, i, w.clock[i][i]
	return m.record, nil
}

// wait proves that the record that a wait is for is issued before it.
func (w *weaver) wait(i int, c *played) (*eventRecord, error) {
	m := w.mark(i, c.event)
	if m.latest.command != nil && m.by != i && w.clock[i][m.by] < m.at {
		return nil, fmt.Errorf("%w: nothing lets the %v be issued before the %v, which is for it", ErrPlan, &m.latest, c)
	}
	m.waits[i], m.waited[i] = *c, w.clock[i][i]
	return m.record, nil
}

// prove proves that memory, of whatever device, is reused only behind its last user. With Pace, kernels touch nothing. Errors:
// ErrPlan, *OrderError.
func (e *Executor) prove() error {
	if e.opt.Pace != nil {
		return nil
	}
	return e.proveSegments(e.provenSegments()...)
}

// proveSegments is prove for segments of so many minibatches, one behind the other.
func (e *Executor) proveSegments(segments ...int) error {
	var sources []iter.Seq[[]played]
	var commands []iter.Seq[*command]
	for _, d := range e.drivers {
		sources, commands = append(sources, d.table.plays(d, segments)), append(commands, d.table.commands())
	}
	return e.proveIssued(sources, commands)
}

// proveIssued is prove for what drivers issue, and the commands of that.
func (e *Executor) proveIssued(sources []iter.Seq[[]played], commands []iter.Seq[*command]) error {
	c := hazard.NewChecker(e.streams + len(e.drivers))
	for i, list := range commands {
		for x := range list {
			x.expect(c, e.drivers[i].device, e.streams+i)
		}
	}
	return e.weave(sources, c.Add)
}

// expect tells a checker what a command of a device uses, whose host has a number behind those of all streams.
func (c *command) expect(checker *hazard.Checker, device, host int) {
	if c.verb == doWork {
		checker.Expect(host, c.worksOn(device))
		return
	}
	checker.Expect(c.on.number, c.touches())
}

// mostProven is how many commands of a segment are proved at most so that operands come together in all ways that they can; what one
// operand goes through alone is proved however long it is.
const mostProven = 1 << 18

// provenSegments returns how many minibatches the segments have that are proved, one behind the other. With a flush a step is proved
// twice: the second begins in the memory of the first. Where batches are staged the second begins with one that waits, and a third step
// brings its own again. Steps of a cyclic plan run on into each other: all that meets is in three of
// them.
//
// Without a flush three kinds of segments follow each other:
//
//   - The first one fills the pipeline, and goes on until each operand of each command, and each row's shapes, have gone round twice. What the
//     first round leaves in a place then meets what the second round puts there. If at most mostProven commands are enough, it goes on until
//     all operands of a command have gone round together.
//   - For each slot of the weights of a stage, the shortest segment follows that leaves the latest weights there.
//   - The first one comes again.
//
// Segments of other lengths differ from these in which slab, block or slot a command has, and so do operands that come together later. What a
// command waits for is the same. Slabs, blocks and slots of one kind are taken in turn, and each has memory and events of its own: between two
// commands that meet in one lie the same commands, whichever it is. The order of commands is one list for each shape of a row, and all shapes
// are in the first segment. Slots of a ring may share memory (ring), and all of them are in it, too.
func (e *Executor) provenSegments() []int {
	switch {
	case e.order.plan.IsCycle():
		return []int{3 * e.group, e.group, 3 * e.group}
	case e.order.plan.IsFlush() && e.StagedBytes() > 0:
		return []int{e.group, e.group, e.group}
	case e.order.plan.IsFlush():
		return []int{e.group, e.group}
	}
	begins, turn, together, commands := 0, 1, 1, 0
	for _, d := range e.drivers {
		for i := range d.table.rows {
			r := &d.table.rows[i]
			turn, commands = max(turn, r.turn, len(r.shapes.Round)), commands+len(r.lists[0])
			for _, c := range append([]cycle.Cycle{r.shapes}, r.axes...) {
				begins, together = max(begins, len(c.Begins)), max(together, len(c.Round))
			}
		}
	}
	together = min(together, mostProven/max(commands, 1))
	whole := max(e.order.long(), (begins+max(2*turn, together))*e.order.repeats)
	whole = (whole + e.group - 1) / e.group * e.group
	ends := map[int]bool{}
	for _, d := range e.drivers {
		for i := range d.table.ends {
			d.table.ends[i].lengths(e.group, ends)
		}
	}
	return slices.Concat([]int{whole}, slices.Sorted(maps.Keys(ends)), []int{whole})
}
