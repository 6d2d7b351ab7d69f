package executor

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/hazard"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Events of a step, by number; those of ops follow.
const (
	eventFork     = iota // the step begins
	eventReady           // the batch is on the device
	eventStaged          // the batch of the next step is
	eventTaken           // it is where its step reads it
	eventBegin           // the sequence begins
	eventSwept           // its last compute op has ended
	eventUpdated         // the weights are updated
	eventJoin            // the last transfer to the device has ended
	eventDone            // the result may be copied
	eventReturned        // the result and all that was offloaded are on the host
	eventOps
)

// command is one thing that a step issues: a launch, a copy, or a wait or record alone.
type command struct {
	hazard.Action
	launch   runtime.Launch
	dst, src runtime.Span // of a copy
}

// text is the name of a command.
type text string

func (t text) String() string { return string(t) }

// script is everything that a step issues, in issue order: commands of op order[m] are list[part[m]:part[m+1]]. All
// streams fork from the compute stream when the step begins, and join it before it ends.
type script struct {
	list   []command
	calls  []prepared     // what its ops launch
	graph  runtime.Launch // of the commands behind the head, on a device that can keep them; nil otherwise
	head   int            // commands that bring the batch to the device: part of no graph, for batches lie in two places
	part   []int
	events int
	mark   []int // per op: the event of its end; none where nobody looks
	from   []int // per op: the event of its start; none where it is that of the end of the compute op before it
	middle []int // per op: the event between the halves of a backward; none where nobody looks

	timed     bool             // whether moments are marked
	leaving   [weightSlots]int // by slot, 1 + the latest backward behind which weights went back to the host from it; 0: none did
	sent, met int              // arrivals of offloaded state, and those that compute has waited for
	number    map[int]int      // by event, of its latest arrival, from 1
}

func (s *script) add(c command) { s.list = append(s.list, c) }

func (s *script) launch(stream int, l runtime.Launch, u use) {
	s.add(command{Action: hazard.Action{Name: u.name, Stream: stream, Accesses: u.accesses, Record: none, Wait: none}, launch: l})
}

func (s *script) copy(stream int, name string, dst, src runtime.Span) {
	s.add(command{
		Action: hazard.Action{Name: text(name), Stream: stream, Accesses: moved(dst, src), Record: none, Wait: none},
		dst:    dst, src: src,
	})
}

// moved is what a copy does to memory.
func moved(dst, src runtime.Span) []hazard.Access {
	return []hazard.Access{{Span: src}, {Span: dst, Write: true}}
}

func (s *script) record(stream, event int) {
	s.add(command{Action: hazard.Action{Name: text("record"), Stream: stream, Record: event, Wait: none}})
}

func (s *script) wait(stream, event int) {
	s.add(command{Action: hazard.Action{Name: text("wait"), Stream: stream, Record: none, Wait: event}})
}

// signal lets stream to wait for all that was issued to stream from.
func (s *script) signal(from, event, to int) {
	s.record(from, event)
	s.wait(to, event)
}

// write writes the script of a step and proves that it, repeated, reuses memory only after its last user: two rounds
// show the hazards from one step to the next. The caller's own accesses to the host slab are ordered by the wait at the
// end of a step.
func (e *Executor) write() error {
	s := &e.script
	s.timed = e.opt.Timed
	e.numberEvents()
	for k := range min(e.parts()-1, len(e.early)) {
		e.early[k] = *s
		e.early[k].calls = e.step.calls
		if k > 0 {
			e.early[k].calls = e.step.adding
		}
		e.writePart(&e.early[k], false)
	}
	if s.calls = e.step.calls; e.parts() > 1 {
		s.calls = e.step.adding
	}
	e.writePart(s, true)
	e.heads[0], e.heads[1] = s.list[:s.head], e.other(s.list[:s.head])
	e.writeStages()
	return ordered(e.rounds(), s.events)
}

// writePart writes the script of a step, or of a part of one: the last part updates the weights.
func (e *Executor) writePart(s *script, last bool) {
	e.writeBegin(s)
	for _, p := range e.step.layout.Order {
		s.part = append(s.part, len(s.list))
		e.writeOp(s, p)
	}
	s.part = append(s.part, len(s.list))
	e.writeEnd(s, last)
}

// part returns the script of part k of a step's n.
func (e *Executor) part(k, n int) *script {
	if k == n-1 {
		return &e.script
	}
	return &e.early[min(k, 1)]
}

// rounds are two steps, their parts on the two batches in turn, and what is staged beside them. Of many parts in the middle, which
// are alike, there are two or three.
func (e *Executor) rounds() (all []command) {
	n := min(e.parts(), 4+e.parts()%2)
	for k := range 2 * n {
		s := e.part(k%n, n)
		all = slices.Concat(all, e.stages[k%2], e.heads[k%2], s.list[s.head:])
	}
	return append(all, e.stages[0]...)
}

// ordered checks the order of commands.
func ordered(list []command, events int) error {
	actions := make([]hazard.Action, len(list))
	for i := range list {
		actions[i] = list[i].Action
	}
	return hazard.Check(actions, allStreams, events)
}

// numberEvents gives events to the ends of ops that others wait for, or that are timed, and to the starts of timed ops
// that may have to wait.
func (e *Executor) numberEvents() {
	s, n := &e.script, len(e.step.layout.seq)
	e.waits = e.step.waits()
	s.events, s.mark, s.from, s.middle = eventOps, make([]int, n), make([]int, n), make([]int, n)
	awaited := make([]bool, n)
	for _, list := range e.waits {
		for _, q := range list {
			awaited[q] = true
		}
	}
	number := func(wanted bool) int {
		if !wanted {
			return none
		}
		s.events++
		return s.events - 1
	}
	for p, op := range e.step.layout.seq {
		s.mark[p] = number(e.opt.Timed || awaited[p])
		s.from[p] = number(e.opt.Timed && (op.Kind.Transfer() || len(e.waits[p]) > 0 || e.Offloading() == OffloadWeights))
		s.middle[p] = number(e.opt.halves && op.Kind == schedule.Backward)
	}
	e.numberState(s)
}

// writeBegin copies the batch to the device, or takes it from where it waits there.
func (e *Executor) writeBegin(s *script) {
	if e.StagedBytes() > 0 {
		s.record(streamCompute, eventFork)
		s.list = append(s.list, e.step.take...)
		s.copy(streamCompute, "upload", e.static.scalars, e.host.scalars)
	} else {
		s.signal(streamCompute, eventFork, streamToDevice)
		for _, u := range e.uploads {
			s.copy(streamToDevice, "upload", u.dst, u.src)
		}
		s.copy(streamToDevice, "upload", e.static.scalars, e.host.scalars)
		s.signal(streamToDevice, eventReady, streamCompute)
	}
	s.head = len(s.list)
	s.record(streamCompute, eventBegin)
	if transfers(e.step.layout.seq) {
		s.wait(streamToDevice, eventBegin)
		s.wait(streamToHost, eventBegin)
	}
	e.writeFirst(s)
}

func (e *Executor) writeOp(s *script, p int) {
	b := e.step
	stream := b.stream[p]
	for _, q := range e.waits[p] {
		s.wait(stream, s.mark[q])
	}
	e.writeFetch(s, b.fetches, p)
	if s.from[p] != none {
		s.record(stream, s.from[p])
	}
	if op := b.layout.seq[p]; op.Kind.Transfer() {
		dst, src := b.transfer(p)
		s.copy(stream, fmt.Sprintf("%v (op %d)", op, p), dst, src)
	}
	half := b.start[p] + e.firstHalf(p)
	e.writeLaunches(s, stream, b.start[p], half)
	if s.middle[p] != none {
		s.record(stream, s.middle[p])
	}
	e.writeLaunches(s, stream, half, b.start[p+1])
	if p == e.loss {
		s.copy(streamCompute, "copy of the loss", e.static.result.Part(lossAt, lossBytes), e.lossSpan)
	}
	if s.mark[p] != none {
		s.record(stream, s.mark[p])
	}
	e.writeAtOnce(s, p)
	e.writeNext(s, b.fetches, p)
}

func (e *Executor) writeLaunches(s *script, stream, from, to int) {
	for _, c := range s.calls[from:to] {
		s.launch(stream, c.launch, c.use)
	}
}

// writeEnd updates the weights, if it ends a step, and copies the result to the host.
func (e *Executor) writeEnd(s *script, last bool) {
	s.record(streamCompute, eventSwept)
	if last {
		e.writeUpdates(s)
	}
	s.record(streamCompute, eventUpdated)
	s.signal(streamToDevice, eventJoin, streamCompute)
	s.signal(streamCompute, eventDone, streamToHost)
	s.copy(streamToHost, "return of the result", e.host.result, e.static.result)
	s.signal(streamToHost, eventReturned, streamCompute)
}

// capture keeps a step, or each kind of part of one, but for its head, as one launch where the device can do that, and nobody has to look between its ops.
func (e *Executor) capture() (err error) {
	device, able := e.dev.(runtime.Grapher)
	if !able || e.opt.NoGraph || e.watched() {
		return nil
	}
	kinds := min(e.parts(), 1+len(e.early))
	for k := range kinds {
		s := e.part(k, kinds)
		if s.graph, err = device.Capture(e.compute, func() error { return e.put(s.list[s.head:]) }); err != nil {
			return err
		}
	}
	return nil
}

func (e *Executor) watched() bool { return e.auditor != nil || e.observer != nil }

// issue puts one step, or the next part of it, on the streams.
func (e *Executor) issue() error {
	if err := e.Stage(); err != nil {
		return err
	}
	e.staged = none
	if err := e.put(e.heads[e.turn]); err != nil {
		return err
	}
	s := e.part(e.done, e.parts())
	switch {
	case s.graph != nil:
		return e.compute.Launch(s.graph)
	case e.watched():
		return e.issueWatched(s)
	}
	return e.put(s.list[s.head:])
}

// put issues commands. It allocates nothing.
func (e *Executor) put(list []command) error {
	for i := range list {
		c := &list[i]
		s := e.streams[c.Stream]
		var err error
		switch {
		case c.launch != nil:
			err = s.Launch(c.launch)
		case c.Wait != none:
			err = s.Wait(e.events[c.Wait])
		case c.Record != none:
			err = s.Record(e.events[c.Record])
		default:
			err = s.Copy(c.dst, c.src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// issueWatched issues a script and stops around every op, for the auditor and the observer.
func (e *Executor) issueWatched(s *script) error {
	list, part := s.list, s.part
	if err := e.put(list[s.head:part[0]]); err != nil {
		return err
	}
	for m, p := range e.step.layout.Order {
		if err := e.wait(); err != nil {
			return err
		}
		if e.auditor != nil {
			e.auditor.before(m)
		}
		if err := e.put(list[part[m]:part[m+1]]); err != nil {
			return err
		}
		if err := e.wait(); err != nil {
			return err
		}
		if e.observer != nil {
			if err := e.observer.after(p); err != nil {
				return err
			}
		}
		if e.auditor != nil {
			e.auditor.after(m)
		}
	}
	return e.put(list[part[len(part)-1]:])
}
