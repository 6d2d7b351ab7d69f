package executor

import (
	"fmt"

	"plimsoll/runtime"
)

// action is one thing issued to a stream of a bound step, in issue order.
type action struct {
	name   string
	stream int
	reads  []runtime.Span
	writes []runtime.Span
	// record and wait name an event by number; -1 for none. A wait precedes, a record follows the work.
	record, wait int
}

// OrderError says that two ops of a bound step may run at the same time on the same bytes.
type OrderError struct {
	First, Second string // the ops, with their streams, in issue order
	Span          runtime.Span
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("%s and %s use %v and no event orders them", e.First, e.Second, e.Span)
}

// checkOrder proves that every two actions on the same bytes, of which one writes, are ordered by streams and
// events: each action gets a vector clock, one entry a stream. Error: *OrderError for the first pair that is not.
func checkOrder(actions []action, streams, events int) error {
	clocks := happens(actions, streams, events)
	byStream := make([][]int, streams)
	for i := range actions {
		a := &actions[i]
		for s := range byStream {
			if s == a.stream {
				continue
			}
			for _, j := range byStream[s][clocks[i][s]:] {
				if span, clash := conflict(&actions[j], a); clash {
					return &OrderError{actions[j].label(), a.label(), span}
				}
			}
		}
		byStream[a.stream] = append(byStream[a.stream], i)
	}
	return nil
}

// happens returns, for each action, how many actions of every stream are certain to have ended before it starts.
func happens(actions []action, streams, events int) [][]int {
	clocks := make([][]int, len(actions))
	now := make([][]int, streams)
	for s := range now {
		now[s] = make([]int, streams)
	}
	recorded := make([][]int, events)
	for i, a := range actions {
		clock := now[a.stream]
		if a.wait >= 0 && recorded[a.wait] != nil {
			for s, n := range recorded[a.wait] {
				clock[s] = max(clock[s], n)
			}
		}
		clocks[i] = append([]int(nil), clock...)
		clock[a.stream]++
		if a.record >= 0 {
			recorded[a.record] = append([]int(nil), clock...)
		}
	}
	return clocks
}

func (a *action) label() string { return fmt.Sprintf("%s (stream %d)", a.name, a.stream) }

func conflict(a, b *action) (runtime.Span, bool) {
	for _, w := range a.writes {
		for _, list := range [][]runtime.Span{b.reads, b.writes} {
			if s, ok := overlap(w, list); ok {
				return s, true
			}
		}
	}
	for _, w := range b.writes {
		if s, ok := overlap(w, a.reads); ok {
			return s, true
		}
	}
	return runtime.Span{}, false
}

func overlap(w runtime.Span, list []runtime.Span) (runtime.Span, bool) {
	for _, r := range list {
		if w.Overlaps(r) {
			start := max(w.Offset, r.Offset)
			return runtime.Span{Space: w.Space, Offset: start, Bytes: min(w.End(), r.End()) - start}, true
		}
	}
	return runtime.Span{}, false
}
