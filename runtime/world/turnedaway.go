package world

import (
	"errors"
	"fmt"
)

// mostTurnedAway bounds the list of who was turned away.
const mostTurnedAway = 8

// turnedAway remembers who was turned away, and why. A process of another secret, program or world is listed by itself. Connections
// that say nothing of this protocol are counted, so that a scan of ports does not hide a process.
type turnedAway struct {
	processes []turned
	strangers int
	last      string // of the strangers
}

// turned is an address whose connections were turned away for one reason.
type turned struct {
	who   string
	times int
}

// add remembers a connection, and returns what to say of it, and whether it is the first of its kind.
func (t *turnedAway) add(from string, err error) (who string, first bool) {
	who = from + ": " + clip(stranger(err), 200)
	if !process(err) {
		t.strangers++
		t.last = who
		return who, t.strangers == 1
	}
	for i := range t.processes {
		if t.processes[i].who == who {
			t.processes[i].times++
			return who, false
		}
	}
	if len(t.processes) == mostTurnedAway {
		return who, false
	}
	t.processes = append(t.processes, turned{who, 1})
	return who, true
}

// list returns a text for each process, and one for all strangers.
func (t *turnedAway) list() (all []string) {
	for _, p := range t.processes {
		if p.times > 1 {
			p.who += fmt.Sprintf(" (%d times)", p.times)
		}
		all = append(all, p.who)
	}
	if t.strangers > 0 {
		all = append(all, fmt.Sprintf("connections of strangers (%d, the last from %s)", t.strangers, t.last))
	}
	return all
}

// process reports whether a connection that was turned away is one of a process, and not of a stranger.
func process(err error) bool {
	return rejected(err) || errors.Is(err, errOtherSecret) || errors.Is(err, ErrSecret) || is[*RefusalError](err) || is[*DisagreementError](err) || is[*formatError](err)
}

// stranger says what is wrong with who failed to prove that it belongs here.
func stranger(err error) string {
	if rejected(err) {
		return errOtherSecret.Error()
	}
	return err.Error()
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
