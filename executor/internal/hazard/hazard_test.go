package hazard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/runtime"
)

type name string

func (n name) String() string { return string(n) }

func access(device int, offset, bytes int64, write bool) Access {
	return Access{device, runtime.Span{Offset: offset, Bytes: bytes}, write}
}

// story is two streams: a copy writes what a kernel reads; the next copy writes some of it again.
func story(waits ...bool) []Action {
	wait := func(i, event int) int {
		if waits[i] {
			return event
		}
		return None
	}
	return []Action{
		{name("copy"), 1, []Access{access(0, 0, 64, true)}, None, 0},
		{name("kernel"), 0, []Access{access(0, 0, 64, false), access(0, 64, 64, true)}, wait(0, 0), 1},
		{name("next copy"), 1, []Access{access(0, 32, 64, true)}, wait(1, 1), None},
	}
}

func TestEventsOrderAndEachMissingOneIsFound(t *testing.T) {
	t.Parallel()
	if err := Check(story(true, true), 2, 2); err != nil {
		t.Errorf("with all events: %v", err)
	}
	for missing, names := range [][2]string{{"copy (stream 1)", "kernel (stream 0)"}, {"kernel (stream 0)", "next copy (stream 1)"}} {
		waits := []bool{true, true}
		waits[missing] = false
		err := Check(story(waits...), 2, 2)
		var found *Error
		if !errors.As(err, &found) || found.First != names[0] || found.Second != names[1] {
			t.Fatalf("without wait %d: %v, want %v named", missing, err, names)
		}
		if found.Span.Bytes == 0 || !strings.Contains(err.Error(), "no event orders them") {
			t.Errorf("message %q", err)
		}
	}
}

func TestReadsOtherSpacesAndOtherDevicesDoNotMeet(t *testing.T) {
	t.Parallel()
	elsewhere := Access{0, runtime.Span{Space: runtime.Host, Bytes: 8}, true}
	list := []Action{
		{name("a"), 0, []Access{access(0, 0, 8, false)}, None, None},
		{name("b"), 1, []Access{access(0, 0, 8, false), access(1, 0, 8, true), elsewhere}, None, None},
	}
	if err := Check(list, 2, 0); err != nil {
		t.Error(err)
	}
}

// program makes random actions on several streams and devices, with enough events for some of them to be in order.
func program(r *rand.Rand, streams, events int) (list []Action) {
	for i := range 4 + r.IntN(30) {
		a := Action{name(fmt.Sprint("action ", i)), r.IntN(streams), nil, None, None}
		for range r.IntN(3) {
			a.Accesses = append(a.Accesses, access(r.IntN(2), 8*r.Int64N(24), 8*(1+r.Int64N(2)), r.IntN(3) == 0))
		}
		if r.IntN(2) == 0 {
			a.Wait = r.IntN(events)
		}
		if r.IntN(2) == 0 {
			a.Record = r.IntN(events)
		}
		list = append(list, a)
	}
	return list
}

// unordered is Check as its definition says: a table of what is behind what, and every pair of actions.
func unordered(list []Action) (pairs map[[2]string]bool) {
	n := len(list)
	behind := make([][]bool, n)
	for i, a := range list {
		behind[i] = make([]bool, n)
		follow := func(j int) {
			behind[i][j] = true
			for k := range j {
				behind[i][k] = behind[i][k] || behind[j][k]
			}
		}
		for j := range i {
			if list[j].Stream == a.Stream {
				follow(j)
			}
		}
		for j := i - 1; j >= 0 && a.Wait != None; j-- {
			if list[j].Record == a.Wait {
				follow(j)
				break
			}
		}
	}
	pairs = map[[2]string]bool{}
	for i := range list {
		for j := range i {
			for _, x := range list[i].Accesses {
				for _, y := range list[j].Accesses {
					if !behind[i][j] && x.Device == y.Device && (x.Write || y.Write) && x.Span.Offset < y.Span.End() && y.Span.Offset < x.Span.End() {
						pairs[[2]string{list[j].Name.String(), list[i].Name.String()}] = true
					}
				}
			}
		}
	}
	return pairs
}

func TestAgreesWithTheDefinition(t *testing.T) {
	t.Parallel()
	const cases = 20_000
	ordered := 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 5))
		streams, events := 1+r.IntN(4), 1+r.IntN(4)
		list := program(r, streams, events)
		pairs := unordered(list)
		var found *Error
		if err := Check(list, streams, events); err == nil {
			ordered++
		} else if !errors.As(err, &found) {
			t.Fatal(err)
		}
		if (found == nil) != (len(pairs) == 0) {
			t.Fatalf("seed %d: %v, the definition has %v", seed, found, pairs)
		}
		if found != nil {
			first, _, _ := strings.Cut(found.First, " (")
			second, _, _ := strings.Cut(found.Second, " (")
			if !pairs[[2]string{first, second}] {
				t.Fatalf("seed %d: %v is not among %v", seed, found, pairs)
			}
		}
	}
	if ordered < cases/20 || ordered > cases*19/20 {
		t.Errorf("%d of %d are in order", ordered, cases)
	}
}

// A long program is judged as its definition says, and what has ended is forgotten.
func TestLongProgramsAreForgotten(t *testing.T) {
	t.Parallel()
	const streams, rounds = 3, 150
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 6))
		var list []Action
		for i := range rounds { // each stream works in a place of its own, then in that of the stream before, which it waits for
			for s := range streams {
				a := Action{name(fmt.Sprint("action ", len(list))), s, []Access{access(0, int64(64*s), 64, true)}, None, s}
				if i > 0 || s > 0 {
					a.Wait = (s + streams - 1) % streams
					a.Accesses = append(a.Accesses, access(0, int64(64*a.Wait), 64, true))
				}
				list = append(list, a)
			}
		}
		if seed > 0 {
			list[streams+r.IntN(len(list)-streams)].Wait = None
		}
		pairs := unordered(list)
		if err := Check(list, streams, streams); (err != nil) != (len(pairs) > 0) || (err != nil) != (seed > 0) {
			t.Fatalf("seed %d: %v, the definition has %v", seed, err, pairs)
		}
		if seed > 0 {
			continue
		}
		c, events := NewChecker(streams), make([]Event, streams)
		for i := range list {
			c.Expect(list[i].Stream, list[i].Accesses)
		}
		for i, a := range list {
			var wait *Event
			if a.Wait != None {
				wait = &events[a.Wait]
			}
			if err := c.Add(&list[i], wait, &events[a.Record]); err != nil || c.Remembered() > 64*streams+streams {
				t.Fatalf("%d of %d actions are remembered: %v", c.Remembered(), i, err)
			}
		}
	}
}
