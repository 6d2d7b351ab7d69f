package pipeline

import (
	"fmt"
	"strings"

	"plimsoll/executor/commands"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// Commands lists the tables that the devices of this process play.
func Commands(e *Executor) []commands.Table {
	l := newLister(e)
	own := e.own()
	all := make([]commands.Table, len(own))
	for i, d := range own {
		all[i] = l.table(d)
	}
	return all
}

// lister lists the commands of tables. It names turns and events of channels by their channel, and numbers the other ones.
type lister struct {
	turns  map[chan struct{}]string
	events map[runtime.Event]string
}

func newLister(e *Executor) *lister {
	l := &lister{map[chan struct{}]string{}, map[runtime.Event]string{}}
	for _, c := range e.channels {
		for i := range c.blocks {
			block := fmt.Sprintf("%v, block %d", c, i)
			l.turns[c.free[i]], l.turns[c.sent[i]] = block+", is free", block+", is sent"
			for _, of := range []struct {
				events []runtime.Event
				is     string
			}{{c.arrived, " has arrived"}, {c.freed, " is read"}, {c.copied, " is copied"}} {
				if i < len(of.events) && of.events[i] != nil {
					l.events[of.events[i]] = block + "," + of.is
				}
			}
		}
	}
	return l
}

func (l *lister) table(d *driver) commands.Table {
	t := commands.Table{Device: fmt.Sprintf("device %d, %s", d.device, d.dev.Info().Name), Period: "a step"}
	if !d.e.order.plan.IsFlush() {
		t.Period = minibatches(d.table.repeats)
	}
	if len(d.table.before) > 0 {
		t.Rows = append(t.Rows, commands.Constant("before a run", l.list(d.table.before)))
	}
	for _, o := range d.table.opens {
		t.Rows = append(t.Rows, commands.Constant("before a run, and behind it, batch of "+o.name(), l.list(o.list)))
	}
	for i := range d.table.rows {
		t.Rows = append(t.Rows, l.row(&d.table.rows[i], d.table.repeats))
	}
	for _, x := range d.table.ends {
		if len(x.shares) > 0 {
			t.Rows = append(t.Rows, commands.Constant(fmt.Sprintf("end of a run of stage %d", x.stage), l.list(x.shares)))
		}
	}
	return t
}

// mostListed is how many periods of a row are listed: operands that go round by themselves are all back where they were only after the least
// common multiple of their cycles.
const mostListed = 256

func (l *lister) row(r *row, repeats int) commands.Row {
	out := commands.Row{Task: r.String(), Ahead: floorDiv(r.shift, repeats)}
	if r.kind == pipeline.Update {
		out.Task = r.name()
	}
	begins, round := r.lengths()
	if begins+round > mostListed {
		out.Task = fmt.Sprintf("%s, the first %d of %d periods", out.Task, mostListed, begins+round)
		begins, round = 0, mostListed
	}
	numbers := map[string]int{}
	now := make([]int32, len(r.axes))
	for k := range begins + round {
		var list []*command
		var key strings.Builder // of places in memory: equal commands are one
		for i, cells := 0, r.list(k, now); i < len(cells); i++ {
			list = append(list, cells[i].command(now))
			fmt.Fprintf(&key, "%p ", list[i])
		}
		n, known := numbers[key.String()]
		if !known {
			n = len(out.Variants)
			numbers[key.String()], out.Variants = n, append(out.Variants, l.list(list))
		}
		if k < begins {
			out.First = append(out.First, n)
		} else {
			out.Round = append(out.Round, n)
		}
	}
	return out
}

func minibatches(n int) string {
	if n == 1 {
		return "1 minibatch"
	}
	return fmt.Sprintf("%d minibatches", n)
}

// list lists the commands that are played, without those by which drivers say where they are.
func (l *lister) list(list []*command) (all []commands.Command) {
	for _, c := range list {
		switch c.verb {
		case doBegin, doStart, doAudit, doObserve:
		default:
			if c.played != never {
				all = append(all, l.command(c))
			}
		}
	}
	return all
}

func (l *lister) command(c *command) commands.Command {
	out := commands.Command{Verb: listed[c.verb], Stream: commands.Driver, When: when(c)}
	switch c.verb {
	case doGive, doTake:
		out.What = l.turn(c.turn)
		return out
	case doWork:
		out.What = hostTasks[c.work]
		if c.work >= stampStart {
			out.Verb = commands.Note
		}
		return out
	case doEnd, doFinish:
		out.What = "end of the task"
	case doRecord, doWait:
		if out.What = l.event(c.event); c.timed {
			out.Verb = commands.Note
		}
	case doCopy:
		out.What, out.Bytes, out.Reads = fmt.Sprintf("%v to %v", c.src.Space, c.dst.Space), c.dst.Bytes, c.src
		if c.channel != nil {
			out.What = c.channel.String()
		}
	default:
		out.What = c.Kernel()
	}
	out.Stream, out.Writes = c.on.s.Name(), writes(c)
	return out
}

// when returns under which condition a command is played.
func when(c *command) string {
	switch {
	case c.played == always:
		return "the minibatch is outside the run, too"
	case c.ahead != 0:
		return fmt.Sprintf("the run has %s more", minibatches(c.ahead))
	case c.link != nil:
		return "the link changes its direction"
	}
	return ""
}

// listed are the verbs as they are listed.
var listed = [...]commands.Verb{
	doLaunch: commands.Launch, doCopy: commands.Copy, doSend: commands.Send, doReceive: commands.Receive, doRecord: commands.Record, doWait: commands.Wait,
	doGive: commands.Give, doTake: commands.Take, doWork: commands.Work, doEnd: commands.Note, doFinish: commands.Note,
}

// hostTasks name what the host does.
var hostTasks = [...]string{
	fillBatch: "fill a batch", awaitResult: "await the result", awaitNorm: "await the norm", stampStart: "the start", stampEnd: "the end",
}

func (l *lister) turn(turn chan struct{}) string {
	if l.turns[turn] == "" {
		l.turns[turn] = fmt.Sprintf("turn %d", len(l.turns))
	}
	return l.turns[turn]
}

func (l *lister) event(ev runtime.Event) string {
	if l.events[ev] == "" {
		l.events[ev] = fmt.Sprintf("event %d", len(l.events))
	}
	return l.events[ev]
}

// writes returns the memory that a command writes.
func writes(c *command) (all []runtime.Span) {
	for _, a := range c.touches() {
		if a.Write {
			all = append(all, a.Span)
		}
	}
	return all
}
