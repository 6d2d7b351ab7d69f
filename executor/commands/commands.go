// Package commands lists the tables of commands that devices play, as data that people can read. It knows no executor and no plan.
package commands

import (
	"fmt"
	"io"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/runtime"
)

// Verb says what a command does.
type Verb uint8

// The verbs. A driver is the part of an executor that issues the commands of one device.
const (
	Launch  Verb = iota // a kernel
	Copy                // bytes, to this device, its host or another device
	Send                // a message to another process
	Receive             // a message from another process
	Record              // an event at the end of a stream
	Wait                // of a stream, for an event
	Give                // a turn to another driver
	Take                // a turn from another driver
	Work                // of the driver, on the host
	Note                // of a time, or of the end of a task: nothing waits for it
	verbs
)

var verbNames = [verbs]string{"launch", "copy", "send", "receive", "record", "wait", "give", "take", "work", "note"}

// String returns the verb in one word.
func (v Verb) String() string { return verbNames[v] }

// Driver is the stream of commands that a driver carries out itself.
const Driver = "driver"

// Command is one command of a table.
type Command struct {
	Verb   Verb
	Stream string         // its name, or Driver
	What   string         // the kernel, what is copied, the event or the turn
	Bytes  int64          // of a copy; else 0
	Reads  runtime.Span   // by a copy; else none
	Writes []runtime.Span // by which, as by what they read, variants of a row differ
	When   string         // under which condition it is played; "": for each minibatch of the run
}

// mostSpans is how many spans of what a command writes are told.
const mostSpans = 2

// Name returns the command in one line, without its stream and without addresses.
func (c *Command) Name() string {
	text := fmt.Sprintf("%-8v%s", c.Verb, c.What)
	if c.Bytes > 0 {
		text += ", " + units.Bytes(c.Bytes)
	}
	return text
}

// String returns the command in one line, without its stream.
func (c *Command) String() string {
	text := c.Name()
	if c.Reads.Bytes > 0 {
		text += fmt.Sprintf(", from %v", c.Reads)
	}
	if len(c.Writes) > 0 {
		text += ", into " + spans(c.Writes)
	}
	if c.When != "" {
		text += ", when " + c.When
	}
	return text
}

func spans(all []runtime.Span) string {
	var b strings.Builder
	for i, s := range all {
		if i == mostSpans {
			fmt.Fprintf(&b, " and %d more", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s.String())
	}
	return b.String()
}

// Row is the commands of one task. Period by period the row plays the variants First, one after the other, and then those of Round, round
// and round. Both are indices of Variants.
type Row struct {
	Task         string // in the notation of plans
	Ahead        int    // in period k the table plays the variant of period k+Ahead; none before period 0
	First, Round []int
	Variants     [][]Command
}

// In returns the commands that the table plays in a period; nil before its first one.
func (r *Row) In(period int) []Command {
	k := period + r.Ahead
	switch {
	case k < 0:
		return nil
	case k < len(r.First):
		return r.Variants[r.First[k]]
	}
	return r.Variants[r.Round[(k-len(r.First))%len(r.Round)]]
}

// Steady returns the variants that the row plays round and round, in order.
func (r *Row) Steady() [][]Command {
	all := make([][]Command, len(r.Round))
	for i, n := range r.Round {
		all[i] = r.Variants[n]
	}
	return all
}

// Constant returns a row with one variant.
func Constant(task string, list []Command) Row {
	return Row{Task: task, Round: []int{0}, Variants: [][]Command{list}}
}

// Table is the commands that one device plays in a period, in the order in which they are issued.
type Table struct {
	Device string
	Period string // what a period is: "a step", "2 minibatches"
	Rows   []Row
}

// Size returns how many commands the table has, all variants together.
func (t *Table) Size() (n int) {
	for i := range t.Rows {
		for _, list := range t.Rows[i].Variants {
			n += len(list)
		}
	}
	return n
}

// Write writes tables as text, a command a line. Errors: those of w.
func Write(w io.Writer, tables []Table) error {
	var b strings.Builder
	for i := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		tables[i].write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: a period is %s, %s in %s\n", t.Device, t.Period, units.Count(t.Size(), "command"), units.Count(len(t.Rows), "row"))
	width := 0
	for i := range t.Rows {
		for _, list := range t.Rows[i].Variants {
			for k := range list {
				width = max(width, len(list[k].Stream))
			}
		}
	}
	for i := range t.Rows {
		t.Rows[i].write(b, width)
	}
}

// write writes the row. Streams stand in a column of the width.
func (r *Row) write(b *strings.Builder, width int) {
	b.WriteString(r.Task)
	if len(r.Variants) > 1 {
		fmt.Fprintf(b, ": variants %s", numbers(r.Round))
		if len(r.First) > 0 {
			fmt.Fprintf(b, ", behind %s", numbers(r.First))
		}
	}
	b.WriteByte('\n')
	for n, list := range r.Variants {
		if len(r.Variants) > 1 {
			fmt.Fprintf(b, "  variant %d\n", n)
		}
		for i := range list {
			fmt.Fprintf(b, "  %-*s  %v\n", width, list[i].Stream, &list[i])
		}
	}
}

func numbers(list []int) string { return strings.Trim(fmt.Sprint(list), "[]") }
