package executor

import (
	"fmt"

	"plimsoll/executor/commands"
	"plimsoll/executor/internal/hazard"
	"plimsoll/runtime"
)

// Commands lists the script that the executor plays in a step: a row for what brings a batch, for each op, and for the end of the step.
// With several parts the rows of the first, of one in the middle and of the last part follow each other.
func Commands(e *Executor) commands.Table {
	l := lister{Executor: e, names: make([]string, allStreams), awaited: make([]bool, e.script.events)}
	for _, c := range e.rounds() {
		if c.Wait != none {
			l.awaited[c.Wait] = true
		}
	}
	for i, s := range e.streams {
		if s != nil {
			l.names[i] = s.Name()
		}
	}
	t := commands.Table{Device: e.dev.Info().Name, Period: "a step"}
	if len(e.stages[0]) > 0 {
		t.Rows = append(t.Rows, l.inTurn("next batch", e.stages))
	}
	t.Rows = append(t.Rows, l.inTurn("batch", e.heads))
	kinds := min(e.parts(), 1+len(e.early))
	for k := range kinds {
		t.Rows = append(t.Rows, l.partRows(e.part(k, kinds), k == kinds-1)...)
	}
	return t
}

// lister lists the commands of scripts.
type lister struct {
	*Executor
	names   []string // of streams
	awaited []bool   // by event: a stream waits for it
}

// inTurn lists what the two batches are brought by, in turn.
func (l *lister) inTurn(task string, batches [2][]command) commands.Row {
	return commands.Row{Task: task, Round: []int{0, 1}, Variants: [][]commands.Command{l.list(batches[0]), l.list(batches[1])}}
}

// partRows lists a script behind its head.
func (l *lister) partRows(s *script, last bool) (rows []commands.Row) {
	end := "end of the part"
	if last {
		end = "update"
	}
	if begin := s.list[s.head:s.part[0]]; len(begin) > 0 {
		rows = append(rows, commands.Constant("begin", l.list(begin)))
	}
	for m, p := range l.step.layout.Order {
		rows = append(rows, commands.Constant(l.step.layout.seq[p].String(), l.list(s.list[s.part[m]:s.part[m+1]])))
	}
	return append(rows, commands.Constant(end, l.list(s.list[s.part[len(s.part)-1]:])))
}

func (l *lister) list(script []command) []commands.Command {
	all := make([]commands.Command, len(script))
	for i := range script {
		c := &script[i]
		all[i] = commands.Command{Stream: l.names[c.Stream], What: c.Name.String(), Writes: written(c.Accesses)}
		switch {
		case c.launch != nil:
			all[i].Verb, all[i].What = commands.Launch, c.launch.Kernel()
		case c.Wait != none:
			all[i].Verb, all[i].What = commands.Wait, eventName(c.Wait)
		case c.Record != none && l.awaited[c.Record]:
			all[i].Verb, all[i].What = commands.Record, eventName(c.Record)
		case c.Record != none:
			all[i].Verb, all[i].What = commands.Note, eventName(c.Record)
		default:
			all[i].Verb, all[i].Bytes = commands.Copy, c.dst.Bytes
			all[i].Reads = c.src
		}
	}
	return all
}

func eventName(number int) string { return fmt.Sprintf("event %d", number) }

// written returns the memory that is written.
func written(accesses []hazard.Access) (all []runtime.Span) {
	for _, a := range accesses {
		if a.Write {
			all = append(all, a.Span)
		}
	}
	return all
}
