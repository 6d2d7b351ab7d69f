package pipeline

import (
	"fmt"
	"strings"

	"plimsoll/executor/commands"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
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
	t := commands.Table{Device: fmt.Sprintf("device %d, %s", d.Number, d.Dev.Info().Name), Period: "a step"}
	if !d.lay.order.Plan.IsFlush() {
		t.Period = minibatches(d.table.Repeats)
	}
	if len(d.table.Before) > 0 {
		t.Rows = append(t.Rows, commands.Constant("before a run", l.list(d.table.Before)))
	}
	for _, o := range d.table.Opens {
		t.Rows = append(t.Rows, commands.Constant("before a run, and behind it, batch of "+o.Name(), l.list(o.List)))
	}
	for i := range d.table.Rows {
		t.Rows = append(t.Rows, l.row(&d.table.Rows[i], d.table.Repeats))
	}
	for _, x := range d.table.Ends {
		if len(x.Shares) > 0 {
			t.Rows = append(t.Rows, commands.Constant(fmt.Sprintf("end of a run of stage %d", x.Stage), l.list(x.Shares)))
		}
	}
	return t
}

// mostListed is how many periods of a row are listed. Operands that go round by themselves are all back where they were only after the
// least common multiple of their cycles.
const mostListed = 256

func (l *lister) row(r *table.Row, repeats int) commands.Row {
	out := commands.Row{Task: r.String(), Ahead: order.FloorDiv(r.Shift, repeats)}
	if r.Kind == pipeline.Update {
		out.Task = r.Name()
	}
	begins, round := r.Lengths()
	if begins+round > mostListed {
		out.Task = fmt.Sprintf("%s, the first %d of %d periods", out.Task, mostListed, begins+round)
		begins, round = 0, mostListed
	}
	numbers := map[string]int{}
	now := make([]int32, len(r.Axes))
	for k := range begins + round {
		var list []*table.Command
		var key strings.Builder // of places in memory: equal commands are one
		for i, cells := 0, r.List(k, now); i < len(cells); i++ {
			list = append(list, cells[i].Command(now))
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
func (l *lister) list(list []*table.Command) (all []commands.Command) {
	for _, c := range list {
		switch c.Verb {
		case table.DoBegin, table.DoStart, table.DoAudit, table.DoObserve:
		default:
			if c.Played != table.Never {
				all = append(all, l.command(c))
			}
		}
	}
	return all
}

func (l *lister) command(c *table.Command) commands.Command {
	out := commands.Command{Verb: listed[c.Verb], Stream: commands.Driver, When: when(c)}
	switch c.Verb {
	case table.DoGive, table.DoTake:
		out.What = l.turn(c.Turn)
		return out
	case table.DoWork:
		out.What = hostTasks[c.Work]
		if c.Work >= table.StampStart {
			out.Verb = commands.Note
		}
		return out
	case table.DoEnd, table.DoFinish:
		out.What = "end of the task"
	case table.DoRecord, table.DoWait:
		if out.What = l.event(c.Event); c.Timed {
			out.Verb = commands.Note
		}
	case table.DoCopy:
		out.What, out.Bytes, out.Reads = fmt.Sprintf("%v to %v", c.Src.Space, c.Dst.Space), c.Dst.Bytes, c.Src
		if c.Channel != nil {
			out.What = c.Channel.String()
		}
	default:
		out.What = c.Kernel()
	}
	out.Stream, out.Writes = c.On.S.Name(), writes(c)
	return out
}

// when returns under which condition a command is played.
func when(c *table.Command) string {
	switch {
	case c.Played == table.Always:
		return "the minibatch is outside the run, too"
	case c.Ahead != 0:
		return fmt.Sprintf("the run has %s more", minibatches(c.Ahead))
	case c.Link != nil:
		return "the link changes its direction"
	}
	return ""
}

// listed are the verbs as they are listed.
var listed = [...]commands.Verb{
	table.DoLaunch: commands.Launch, table.DoCopy: commands.Copy, table.DoSend: commands.Send, table.DoReceive: commands.Receive, table.DoRecord: commands.Record, table.DoWait: commands.Wait,
	table.DoGive: commands.Give, table.DoTake: commands.Take, table.DoWork: commands.Work, table.DoEnd: commands.Note, table.DoFinish: commands.Note,
}

// hostTasks name what the host does.
var hostTasks = [...]string{
	table.FillBatch: "fill a batch", table.AwaitResult: "await the result", table.AwaitNorm: "await the norm", table.StampStart: "the start", table.StampEnd: "the end",
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
func writes(c *table.Command) (all []runtime.Span) {
	for _, a := range c.Touches() {
		if a.Write {
			all = append(all, a.Span)
		}
	}
	return all
}
