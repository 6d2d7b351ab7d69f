package train

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/executor/commands"
)

// listed plays the tables of a run in the listed order. A driver takes a turn only after another driver has given it. The first turn that
// says that a block is free is given from the start. A stream may wait once for an event that is not recorded yet: the event of the last
// user of its memory.
type listed struct {
	turns    map[string]int
	recorded map[string]bool
	early    map[string]int // waits before the record
	verbs    [commands.Note + 1]int
}

// play plays the commands of drivers until all are played, or they wait for each other. It returns how many are left.
func (p *listed) play(lists [][]commands.Command) (left int) {
	for moved := true; moved; {
		moved = false
		for i := range lists {
			for len(lists[i]) > 0 && p.one(&lists[i][0]) {
				lists[i], moved = lists[i][1:], true
			}
		}
	}
	for _, list := range lists {
		left += len(list)
	}
	return left
}

// one plays a command; false: its driver has to wait. Commands under a condition, those of links that carry one message at a time, say nothing
// about others.
func (p *listed) one(c *commands.Command) bool {
	if c.When != "" {
		return true
	}
	if _, known := p.turns[c.What]; !known && strings.HasSuffix(c.What, "is free") {
		p.turns[c.What] = 1
	}
	switch c.Verb {
	case commands.Give:
		p.turns[c.What]++
	case commands.Take:
		if p.turns[c.What] == 0 {
			return false
		}
		p.turns[c.What]--
	case commands.Record:
		p.recorded[c.What] = true
	case commands.Wait:
		if !p.recorded[c.What] {
			p.early[c.What]++
		}
	}
	p.verbs[c.Verb]++
	return true
}

// played returns all that a table plays in its first periods, those before period 0 that fill the pipeline included.
func played(t *commands.Table, periods int) (all []commands.Command) {
	most := 0
	for i := range t.Rows {
		most = max(most, t.Rows[i].Ahead)
	}
	for k := -most; k < periods; k++ {
		for i := range t.Rows {
			if r := &t.Rows[i]; k+r.Ahead < periods {
				all = append(all, r.In(k)...)
			}
		}
	}
	return all
}

// The tables of a run can be played in the listed order, on one device and on several. No driver waits for a turn that is never given, and
// no stream waits for an event that is never recorded.
func TestListedTablesArePlayed(t *testing.T) {
	t.Parallel()
	const periods = 16
	branched, divided := tiny(4), tiny(6)
	branched.Model, divided.Parts = "siamese", 3
	_, branches := stagedRuns(t, branched, 2)
	_, staged := stagedRuns(t, divided, 2)
	for name, r := range map[string]*Run{
		"one device":      planned(t, opened(t, tiny(4)), 2),
		"parts":           parted(t, tiny(8), 4, "store-all", false),
		"branches":        branches,
		"staged parts":    staged,
		"moving weights":  pipeRun(t, piped(t, 1, 1, 4), "layer-window", 1, 2),
		"with a flush":    pipeRun(t, piped(t, 2, 4, 8), "1f1b-flush", 2, 2),
		"without a flush": pipeRun(t, piped(t, 3, 1, 8), "1f1b*", 3, 4),
	} {
		tables, err := r.Tables()
		must(t, err)
		p := &listed{turns: map[string]int{}, recorded: map[string]bool{}, early: map[string]int{}}
		lists := make([][]commands.Command, len(tables))
		for i := range tables {
			lists[i] = played(&tables[i], periods)
		}
		if left := p.play(lists); left > 0 {
			t.Errorf("%s: drivers wait for each other, %d commands are left", name, left)
		}
		for event, n := range p.early {
			if n > 1 || !p.recorded[event] {
				t.Errorf("%s: %d waits for %s, which nothing has recorded", name, n, event)
			}
		}
		several := len(tables) > 1
		waits := several || name == "moving weights" // a sequence without transfers needs one stream
		if several != (p.verbs[commands.Give] > 0) || p.verbs[commands.Launch] < periods*40 || waits && p.verbs[commands.Wait] < periods {
			t.Errorf("%s: %v", name, p.verbs)
		}
	}
}

// A run in several processes has no list, as no process has all devices.
func TestTablesOfProcesses(t *testing.T) {
	t.Parallel()
	r := planned(t, opened(t, tiny(4)), 2)
	r.World = &World{}
	if _, err := r.Tables(); !errors.Is(err, ErrSpec) {
		t.Errorf("got %v", err)
	}
}
