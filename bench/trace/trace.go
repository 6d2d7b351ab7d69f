// Package trace writes timelines as Chrome trace event JSON, which Perfetto (https://ui.perfetto.dev) and
// chrome://tracing open. A device is a process, a stream a thread, memory a counter; predicted and measured runs
// are processes side by side ("cpu predicted", "cpu measured").
//
// The format is that of "Trace Event Format" (Google, 2016): complete events (ph X), counters (C) and metadata (M).
package trace

import (
	"errors"
	"fmt"
	"io"
	"math"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
)

// ErrInvalid is wrapped by the errors of traces that no viewer could show.
var ErrInvalid = errors.New("invalid trace")

// Trace is a timeline. All times are seconds from its start.
type Trace struct {
	Processes []Process
	Meta      map[string]string // facts about the run: model, plan, limit
}

// Process is a device, as predicted or as measured.
type Process struct {
	Name     string
	Tracks   []Track
	Counters []Counter
}

// Track is a stream: slices in the order of their start, of which one may lie within another but none overlap.
type Track struct {
	Name   string
	Slices []Slice
}

// Slice is something that took time. It has an end rather than a duration, so that two slices of which one ends
// when the other starts need no arithmetic to touch.
type Slice struct {
	Name       string
	Category   string // ops of one kind share it; viewers filter by it
	Start, End float64
	Args       map[string]any // shown when the slice is selected; encodable as JSON
}

// Counter is a quantity over time.
type Counter struct {
	Name    string
	Unit    string // the name of the series: "bytes"
	Samples []Sample
}

// Sample is a step of a counter: Value holds from Time until the next sample. Of several samples at one time the
// viewer shows the last.
type Sample struct {
	Time, Value float64
}

// WriteFile writes the trace to a file that is complete or not there. Errors: ErrInvalid and those of the file.
func (t *Trace) WriteFile(path string) error {
	return atomicfile.WriteFile(path, t.Write)
}

// Write writes the trace, an event a line. Nothing is written when it is invalid. Errors: ErrInvalid and w's.
func (t *Trace) Write(w io.Writer) error {
	if err := t.Validate(); err != nil {
		return err
	}
	e := encoder{w: w}
	e.raw(`{"displayTimeUnit":"ms","otherData":`)
	e.json(t.Meta)
	e.raw(`,"traceEvents":[`)
	for i := range t.Processes {
		e.process(i+1, &t.Processes[i])
	}
	e.raw("\n]}\n")
	return e.err
}

// event is one entry of traceEvents. Times are microseconds.
type event struct {
	Phase     string         `json:"ph"`
	Process   int            `json:"pid"`
	Thread    int            `json:"tid"`
	Name      string         `json:"name"`
	Category  string         `json:"cat,omitempty"`
	Timestamp *micros        `json:"ts,omitempty"`
	Duration  *micros        `json:"dur,omitempty"`
	Args      map[string]any `json:"args,omitempty"`
}

// micros is a time in nanoseconds that is written in microseconds, with all its digits.
type micros int64

func (m micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", m/1000, m%1000), nil
}

// nanos rounds a time; slices that touch still do.
func nanos(seconds float64) micros { return micros(math.Round(seconds * 1e9)) }

// encoder writes events and keeps the first error.
type encoder struct {
	w      io.Writer
	err    error
	events int
}

func (e *encoder) raw(text string) {
	if e.err == nil {
		_, e.err = io.WriteString(e.w, text)
	}
}

func (e *encoder) json(v any) {
	if e.err != nil {
		return
	}
	text, err := fields.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.raw(string(text))
}

func (e *encoder) event(ev event) {
	if e.events > 0 {
		e.raw(",")
	}
	e.events++
	e.raw("\n")
	e.json(ev)
}

func (e *encoder) process(pid int, p *Process) {
	e.name("process", pid, 0, p.Name, pid)
	for i, track := range p.Tracks {
		e.name("thread", pid, i+1, track.Name, i)
		for _, s := range track.Slices {
			start := nanos(s.Start)
			duration := nanos(s.End) - start
			e.event(event{"X", pid, i + 1, s.Name, s.Category, &start, &duration, s.Args})
		}
	}
	for _, c := range p.Counters {
		for _, s := range c.Samples {
			at := nanos(s.Time)
			e.event(event{"C", pid, 0, c.Name, "", &at, nil, map[string]any{c.Unit: s.Value}})
		}
	}
}

// name writes the metadata of a process or thread: its name and its place in the list.
func (e *encoder) name(what string, pid, tid int, name string, place int) {
	e.event(event{Phase: "M", Process: pid, Thread: tid, Name: what + "_name", Args: map[string]any{"name": name}})
	e.event(event{Phase: "M", Process: pid, Thread: tid, Name: what + "_sort_index", Args: map[string]any{"sort_index": place}})
}
