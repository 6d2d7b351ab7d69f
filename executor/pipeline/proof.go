package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// verbs are the names of what commands do, in errors.
var verbs = [...]string{doCopy: "a copy", doSend: "a message", doReceive: "a message", doRecord: "record", doWait: "wait", doGive: "message to another device", doTake: "message of another device", doWork: "work of the host", doEnd: "end"}

// played is a command that is issued for a minibatch.
type played struct {
	*command
	of instance
	by *driver
}

// String names a command that is issued: what it is, in which task.
func (c played) String() string {
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
// driver to another.
type weaver struct {
	drivers []*driver
	lists   [][]played // by driver: what it issues in a round
	clock   [][]int    // by driver
	at      []int      // by driver: its next command, through all rounds
	actions []hazard.Action
	queued  [][]queuedAction  // by stream, those of hosts too: what is issued and must wait for something that is not among the actions yet
	listed  []bool            // by record: it is among the actions
	mail    map[*remote][]int // by way: the records of the messages that were sent and not received
	events  map[eventKey]*mark
	turns   map[chan struct{}][][]int // that were given and not yet taken: the clocks that they carry
	given   map[chan struct{}]int     // at the beginning
	givers  map[chan struct{}]played  // who gave a turn last
	streams int                       // of the devices; the hosts of the drivers follow
	worked  []issued                  // by driver: what its host has done
	seen    []int                     // by stream: how much of that its latest command is behind
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
	way *remote
}

// issued is what a host has done: all that it issues is behind that.
type issued struct{ record, times int }

// mark is what has been issued of an event.
type mark struct {
	number int    // of its latest record; hazard.None: it has none
	latest played // that has recorded it; nil: none has
	by, at int    // its driver, and the clock there
	waits  []played
	waited []int // by driver: the clock of its latest wait
}

// weave returns what the drivers issue when each plays a list so many times. Errors: ErrPlan when drivers wait for each other, or
// when one may issue a wait before the other has issued the record that it is for.
func (e *Executor) weave(rounds int, lists [][]played) (*weaver, error) {
	n := len(e.drivers)
	w := &weaver{streams: e.streams, worked: make([]issued, n), seen: make([]int, e.streams), queued: make([][]queuedAction, e.streams+n), mail: map[*remote][]int{}, drivers: e.drivers, lists: lists, at: make([]int, n), events: map[eventKey]*mark{}, turns: map[chan struct{}][][]int{}, given: map[chan struct{}]int{}, givers: map[chan struct{}]played{}}
	for range e.drivers {
		w.clock = append(w.clock, make([]int, n))
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
			for w.at[i] < rounds*len(w.lists[i]) {
				able, err := w.next(i, w.command(i))
				if err != nil {
					return nil, err
				}
				if !able {
					break
				}
				w.at[i]++
				moved = true
			}
		}
		moved = w.flow() || moved
	}
	return w, w.ended(rounds)
}

// command returns what a driver issues next.
func (w *weaver) command(i int) played { return w.lists[i][w.at[i]%len(w.lists[i])] }

// list returns all that a segment of so many minibatches plays.
func (t *table) list(by *driver, minibatches int) (all []played) {
	_ = t.segment(newBound(minibatches), func(c *command, v *instance) error {
		all = append(all, played{c, *v, by})
		return nil
	})
	return all
}

// ended returns an error when drivers have commands left, or not all that they tell each other is heard.
func (w *weaver) ended(rounds int) error {
	var left []string
	for i, d := range w.drivers {
		if w.at[i] < rounds*len(w.lists[i]) {
			text := fmt.Sprintf("device %d: waits for the %v", d.device, w.command(i))
			if giver, ok := w.givers[w.command(i).turn]; ok {
				text += fmt.Sprintf(", which was given last by the %v", giver)
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
func (w *weaver) next(i int, c played) (able bool, err error) {
	clock := w.clock[i]
	if c.verb == doTake && len(w.turns[c.turn]) == 0 {
		return false, nil
	}
	clock[i]++
	a := hazard.Action{Name: c, Stream: c.on.number, Wait: hazard.None, Record: hazard.None}
	switch c.verb {
	case doTake:
		for k, n := range w.turns[c.turn][0] {
			clock[k] = max(clock[k], n)
		}
		w.turns[c.turn] = w.turns[c.turn][1:]
		return true, nil
	case doGive:
		w.turns[c.turn], w.givers[c.turn] = append(w.turns[c.turn], slices.Clone(clock)), c
		return true, nil
	case doLaunch, doCopy, doReceive:
		a.Accesses = c.touches()
	case doSend:
		a.Accesses, a.Record = c.touches(), w.newRecord()
	case doRecord:
		a.Record, err = w.record(i, c)
	case doWait:
		a.Wait, err = w.wait(i, c)
	case doWork:
		return true, w.work(i, c)
	default:
		return true, nil
	}
	w.behindWork(i, c.on.number)
	w.issue(queuedAction{a, c.verb, c.way})
	return true, err
}

// work adds what the host does with page-locked memory: it waits until streams have done with that.
func (w *weaver) work(i int, c played) error {
	if len(c.pages) == 0 {
		return nil
	}
	a := hazard.Action{Name: c, Stream: w.streams + i, Wait: hazard.None, Record: hazard.None}
	var err error
	if a.Wait, err = w.wait(i, c); err != nil {
		return err
	}
	for _, span := range c.pages {
		if span.Bytes > 0 {
			a.Accesses = append(a.Accesses, hazard.Access{Device: w.drivers[i].device, Span: span, Write: c.writes})
		}
	}
	a.Record = w.newRecord()
	w.worked[i] = issued{a.Record, w.worked[i].times + 1}
	w.issue(queuedAction{Action: a})
	return nil
}

// behindWork lets what is issued to a stream wait for what the host of its driver has done before it was issued.
func (w *weaver) behindWork(i, stream int) {
	if w.seen[stream] == w.worked[i].times {
		return
	}
	w.seen[stream] = w.worked[i].times
	w.issue(queuedAction{Action: hazard.Action{Name: hostWork{}, Stream: stream, Wait: w.worked[i].record, Record: hazard.None}})
}

// hostWork names that a stream's command was issued behind what the host has done.
type hostWork struct{}

func (hostWork) String() string { return "the order of issue" }

// newRecord numbers a record.
func (w *weaver) newRecord() int {
	w.listed = append(w.listed, false)
	return len(w.listed) - 1
}

// issue adds an action to its stream.
func (w *weaver) issue(a queuedAction) { w.queued[a.Stream] = append(w.queued[a.Stream], a) }

// flow lists what streams may do, each as far as what it waits for is listed; false: none may do anything.
func (w *weaver) flow() (moved bool) {
	for again := true; again; {
		again = false
		for s := range w.queued {
			n := 0
			for n < len(w.queued[s]) && w.list(&w.queued[s][n]) {
				n++
			}
			w.queued[s] = w.queued[s][n:]
			again = again || n > 0
		}
		moved = moved || again
	}
	return moved
}

// list lists an action, if what it waits for is listed.
func (w *weaver) list(a *queuedAction) bool {
	if a.verb == doReceive {
		if len(w.mail[a.way]) == 0 {
			return false
		}
		a.Wait, w.mail[a.way] = w.mail[a.way][0], w.mail[a.way][1:]
	}
	if a.Wait != hazard.None && !w.listed[a.Wait] {
		return false
	}
	if a.Record != hazard.None {
		w.listed[a.Record] = true
	}
	if a.verb == doSend {
		w.mail[a.way] = append(w.mail[a.way], a.Record)
	}
	w.actions = append(w.actions, a.Action)
	return true
}

// mark returns that of an event of a driver.
func (w *weaver) mark(i int, ev runtime.Event) *mark {
	k := eventKey{ev, w.drivers[i].process()}
	m := w.events[k]
	if m == nil {
		m = &mark{number: hazard.None, waits: make([]played, len(w.drivers)), waited: make([]int, len(w.drivers))}
		w.events[k] = m
	}
	return m
}

// record proves that all earlier waits for an event are issued before this record of it.
func (w *weaver) record(i int, c played) (int, error) {
	m := w.mark(i, c.event)
	for k, n := range m.waited {
		if k != i && w.clock[i][k] < n {
			return m.number, fmt.Errorf("%w: nothing lets the %v be issued before the %v, which it is not for", ErrPlan, m.waits[k], c)
		}
	}
	m.number, m.latest, m.by, m.at = w.newRecord(), c, i, w.clock[i][i]
	return m.number, nil
}

// wait proves that the record that a wait is for is issued before it.
func (w *weaver) wait(i int, c played) (int, error) {
	m := w.mark(i, c.event)
	if m.latest.command != nil && m.by != i && w.clock[i][m.by] < m.at {
		return m.number, fmt.Errorf("%w: nothing lets the %v be issued before the %v, which is for it", ErrPlan, m.latest, c)
	}
	m.waits[i], m.waited[i] = c, w.clock[i][i]
	return m.number, nil
}

// written returns what the drivers issue in two rounds, of which the second begins in the memory of the first. With a flush a round is a
// step, else a segment that fills the pipeline and goes on until all tables have gone round. Errors: ErrPlan when drivers wait for each
// other.
func (e *Executor) written(lists [][]played) (*weaver, error) { return e.weave(2, lists) }

// played returns what each driver issues in a round.
func (e *Executor) played() (lists [][]played) {
	n := e.provenMinibatches()
	for _, d := range e.drivers {
		lists = append(lists, d.table.list(d, n))
	}
	return lists
}

// mostProven is how many periods of a plan without a flush are proved at most when its tables have gone round once:
const mostProven = 64

// provenMinibatches returns how many minibatches show everything that the plan does.
func (e *Executor) provenMinibatches() int {
	if e.order.plan.IsFlush() {
		return e.group
	}
	begins, round := 0, 1
	for _, d := range e.drivers {
		for i := range d.table.rows {
			c := &d.table.rows[i].cycle
			begins, round = max(begins, len(c.begins)), max(round, len(c.round))
		}
	}
	n := max(e.order.long(), (begins+max(round, min(2*round, mostProven)))*e.order.repeats)
	return (n + e.group - 1) / e.group * e.group
}

// prove proves that memory, of whatever device, is reused only behind its last user. With Pace, kernels touch nothing. Errors:
// ErrPlan, *executor.OrderError.
func (e *Executor) prove() error {
	if e.opt.Pace != nil {
		return nil
	}
	return e.proveLists(e.played())
}

// proveLists is prove for what drivers issue in a round.
func (e *Executor) proveLists(lists [][]played) error {
	w, err := e.written(lists)
	if err != nil {
		return err
	}
	return hazard.Check(w.actions, w.streams+len(w.drivers), len(w.listed))
}
