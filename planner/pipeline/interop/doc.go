// Package interop reads what other tools write about chains and their schedules:
//
//   - PipeDream's graph.txt, an operator graph with its profile, becomes a chain (Graph);
//   - PyTorch's table of pipeline ops, a CSV with a row for each rank, becomes a flush plan and can be run on its own
//     costs or on those of a chain (Schedule);
//   - the actions of checkpoint_schedules become a sequence (Actions).
//
// Readers only read: whether a schedule is legal and ends is the answer of a run, not an error. What cannot be read is an
// Error with file, line, field and value.
package interop

import "fmt"

// Error is a place in a file that cannot be read.
type Error struct {
	File   string // as given to the reader; "" when there is none
	Line   int    // from 1; 0 for the file as a whole
	Field  string
	Value  string // as in the file; "" when it is missing
	Reason string
}

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	what := fmt.Sprintf("field %q %s", e.Field, e.Reason)
	if e.Value != "" {
		what = fmt.Sprintf("field %q is %q, which %s", e.Field, brief(e.Value), e.Reason)
	}
	if where == "" {
		return what
	}
	return where + ": " + what
}

// brief cuts a long value off.
func brief(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
