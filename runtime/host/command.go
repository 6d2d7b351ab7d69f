package host

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"plimsoll/runtime"
)

// Launch is work for a stream of this device. Run is called on the stream's goroutine, each time that it is launched.
type Launch interface {
	runtime.Launch
	Run() error
}

// Func is a Launch made of a name and a function. Convert it to an interface once, not for every launch.
type Func struct {
	Name string
	Do   func() error
}

// Kernel returns the name.
func (f Func) Kernel() string { return f.Name }

// Run calls the function.
func (f Func) Run() error { return f.Do() }

type kind uint8

const (
	launching kind = iota
	copying
	recording
	waiting
)

func (k kind) String() string {
	return [...]string{"launch", "copy", "record", "wait"}[k]
}

// command is one entry of a stream's ring; its kind says which fields count.
type command struct {
	kind     kind
	issued   time.Duration
	work     Launch       // launching
	event    *Event       // recording
	point    point        // waiting
	to, from runtime.Span // copying, as all below
	dst, src []byte
	link     *link
	peer     *Device // the device of dst when it is another one; it is entered
}

// run runs a command that was due to begin at an instant, and returns when it was due to end (Stream.due).
func (c *command) run(begin time.Duration, config *Config, abandoned *atomic.Bool) (due time.Duration, err error) {
	if abandoned.Load() {
		return begin, runtime.ErrAbandoned
	}
	switch c.kind {
	case launching:
		return c.launch(begin, pauser{config.FakeClock, abandoned})
	case copying:
		if err := config.fault(c.copyKind()); err != nil {
			return begin, err
		}
		ownTurn()
		return c.link.copy(begin, c.dst, c.src, pauser{config.FakeClock, abandoned})
	case waiting:
		due, err = c.point.await()
		return max(begin, due), err
	}
	return begin, nil
}

// launch runs work: a pause ends when it is due, anything else when it has ended.
func (c *command) launch(begin time.Duration, on pauser) (due time.Duration, err error) {
	if p, ok := c.work.(pause); ok {
		due = begin + p.length
		return due, on.until(due, true)
	}
	err = runGuarded(c.work)
	return now(), err
}

// runGuarded turns a panic of the launch into an error, so that it stops this stream and not the process.
func runGuarded(work Launch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return work.Run()
}

// computes reports whether the command occupies a core until it has ended.
func (c *command) computes() bool {
	_, pauses := c.work.(pause)
	return c.kind == launching && !pauses
}

// release ends what the command held beyond its stream.
func (c *command) release() {
	if c.peer != nil {
		c.peer.leave()
	}
}

func (c *command) copyKind() string {
	if c.peer != nil {
		return "copy to peer"
	}
	return "copy"
}

// String names the command in errors and in Dump.
func (c *command) String() string {
	switch c.kind {
	case launching:
		return c.work.Kernel()
	case copying:
		if c.peer != nil {
			return fmt.Sprintf("copy %v to %v of %s", c.from, c.to, c.peer.config.Name)
		}
		return fmt.Sprintf("copy %v to %v", c.from, c.to)
	case waiting:
		return "wait for " + c.point.String()
	}
	return c.kind.String()
}
