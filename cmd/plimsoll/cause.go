package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"plimsoll/runtime/world"
)

// cause is the message of a process to launch when it fails: when, and which process failed first, as far as it knows.
type cause struct {
	Rank   int       `json:"rank"`
	Text   string    `json:"text,omitempty"`   // how that process failed, where it is another one
	Silent bool      `json:"silent,omitempty"` // that process is silent, and may never end by itself
	At     time.Time `json:"at"`
}

// causePipe takes the cause of this process's failure to launch; nil where launch has not started it.
type causePipe struct {
	once sync.Once
	to   *os.File
	rank int
}

// report tells launch the cause that follows from an error. The first one counts.
func (p *causePipe) report(err error) {
	if p == nil {
		return
	}
	p.once.Do(func() {
		v := cause{Rank: p.rank, At: time.Now()}
		if e, ok := errors.AsType[*world.RankError](err); ok && ofAnother(err) {
			v.Rank, v.Text, v.Silent = e.Rank, e.Error(), e.Why == world.Silent
		}
		_ = json.NewEncoder(p.to).Encode(v) // launch may be gone
		_ = p.to.Close()
	})
}

// late is how long the cause of a process that has ended may take: another process may hold its pipe.
const late = time.Second

// readCause reads the cause of a process that has ended; nil when it gave none.
func readCause(from *os.File) *cause {
	if from == nil {
		return nil
	}
	defer func() { _ = from.Close() }() // it was read
	_ = from.SetReadDeadline(time.Now().Add(late))
	line, err := bufio.NewReader(from).ReadBytes('\n')
	v := &cause{}
	if err != nil || json.Unmarshal(line, v) != nil || v.Rank < 0 {
		return nil
	}
	return v
}

// ofAnother reports whether another process has ended the run: whatever this one was at, a launcher may start it again.
func ofAnother(err error) bool {
	e, ok := errors.AsType[*world.RankError](err)
	return ok && e.Unwrap() == nil
}
