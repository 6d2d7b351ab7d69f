package executor

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/runtime"
)

func span(offset, bytes int64) []runtime.Span {
	return []runtime.Span{{Offset: offset, Bytes: bytes}}
}

// story is two streams: a copy writes what a kernel reads; the next step's copy writes it again.
func story(waits ...bool) []action {
	wait := func(i, event int) int {
		if waits[i] {
			return event
		}
		return none
	}
	return []action{
		{name: "copy", stream: 1, writes: span(0, 64), record: 0, wait: none},
		{name: "kernel", stream: 0, reads: span(0, 64), writes: span(64, 64), record: 1, wait: wait(0, 0)},
		{name: "next copy", stream: 1, writes: span(32, 64), record: none, wait: wait(1, 1)},
	}
}

func TestOrderAcceptsEventsAndFindsEachMissingOne(t *testing.T) {
	if err := checkOrder(story(true, true), 2, 2); err != nil {
		t.Errorf("a step with its events: %v", err)
	}
	for missing, names := range [][2]string{{"copy (stream 1)", "kernel (stream 0)"}, {"kernel (stream 0)", "next copy (stream 1)"}} {
		waits := []bool{true, true}
		waits[missing] = false
		err := checkOrder(story(waits...), 2, 2)
		var oe *OrderError
		if !errors.As(err, &oe) {
			t.Fatalf("without wait %d: %v, want an *OrderError", missing, err)
		}
		if oe.First != names[0] || oe.Second != names[1] {
			t.Errorf("without wait %d: %v, want %v named", missing, oe, names)
		}
		if !strings.Contains(err.Error(), "no event orders them") {
			t.Errorf("message %q", err)
		}
	}
}

func TestOrderIsTransitiveOverStreams(t *testing.T) {
	list := []action{
		{name: "a", stream: 0, writes: span(0, 8), record: 0, wait: none},
		{name: "b", stream: 1, record: 1, wait: 0},
		{name: "c", stream: 2, reads: span(0, 8), record: none, wait: 1},
	}
	if err := checkOrder(list, 3, 2); err != nil {
		t.Error(err)
	}
	list[1].wait = none
	if checkOrder(list, 3, 2) == nil {
		t.Error("a missing middle wait was not found")
	}
}

func TestOrderIgnoresReadsOfTheSameBytesAndOtherSpaces(t *testing.T) {
	list := []action{
		{name: "a", stream: 0, reads: span(0, 8), record: none, wait: none},
		{name: "b", stream: 1, reads: span(0, 8), writes: []runtime.Span{{Space: runtime.Host, Bytes: 8}}, record: none, wait: none},
	}
	if err := checkOrder(list, 2, 0); err != nil {
		t.Error(err)
	}
}
