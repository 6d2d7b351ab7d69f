// Package hazard proves that streams reuse memory only after its last user. Every two actions on the same bytes of a device, of
// which one writes, are ordered by streams and events, whatever the devices' speeds. One device or many make no difference.
package hazard

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// None stands for no event.
const None = -1

// Access is bytes of a device's memory that an action reads or writes.
type Access struct {
	Device int
	Span   runtime.Span
	Write  bool
}

// Action is one thing that is issued to a stream. A wait precedes its work, a record follows it; both name an event by its number.
type Action struct {
	Name         fmt.Stringer
	Stream       int
	Accesses     []Access
	Wait, Record int
}

// Error says that two actions may run at the same time on the same bytes.
type Error struct {
	First, Second string // the actions, with their streams, in the order of issue
	Device        int
	Span          runtime.Span
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s and %s use %v of device %d and no event orders them", e.First, e.Second, e.Span, e.Device)
}

// Uses lists what a prepared call does to a device's memory.
func Uses(device int, uses []kernels.Use) (all []Access) {
	for _, u := range uses {
		if u.Bytes > 0 {
			all = append(all, Access{device, runtime.Span{Space: u.Span.Space, Offset: u.Span.Offset, Bytes: u.Bytes}, u.Write})
		}
	}
	return all
}

// Check proves the order of actions, which are listed so that each stream's stand in the order of issue, and a record before
// the waits that see it. Each action gets a vector clock: how many actions of every stream have ended before it begins. Only
// actions that touch the same memory are compared, and of those only what no clock orders. Error: *Error for the first pair.
func Check(actions []Action, streams, events int) error {
	c, recorded := NewChecker(streams), make([]Event, events)
	at := func(event int) *Event {
		if event == None {
			return nil
		}
		return &recorded[event]
	}
	for i := range actions {
		c.Expect(actions[i].Stream, actions[i].Accesses)
	}
	for i := range actions {
		if err := c.Add(&actions[i], at(actions[i].Wait), at(actions[i].Record)); err != nil {
			return err
		}
	}
	return nil
}

// Event has the clock behind the latest record of an event.
type Event struct{ clock []int }

// Checker is Check for actions that come one by one. It remembers an action as long as a stream that uses the same memory may still be
// before its end.
type Checker struct {
	clock  [][]int // by stream, of its next action
	issued []int   // by stream
	users  map[memory]*users
}

// NewChecker returns one for so many streams.
func NewChecker(streams int) *Checker {
	c := &Checker{clock: make([][]int, streams), issued: make([]int, streams), users: map[memory]*users{}}
	for s := range c.clock {
		c.clock[s] = make([]int, streams)
	}
	return c
}

// memory is one of a device's.
type memory struct {
	device int
	space  runtime.Space
}

// users are the actions that have touched a memory, by stream.
type users struct {
	streams []int // that touch it, or will
	lists   []userList
}

// userList is the actions of a stream, in order, but those that nobody need be compared with.
type userList struct {
	all  []user
	most int // of them until some are dropped
}

// user is an action that has touched a memory, and which of its stream it is.
type user struct {
	at int
	Action
}

// Expect says that a stream will use some memory. All that an action of Add uses has been expected before the first one.
func (c *Checker) Expect(stream int, accesses []Access) {
	for _, x := range accesses {
		m := memory{x.Device, x.Span.Space}
		u := c.users[m]
		if u == nil {
			u = &users{lists: make([]userList, len(c.clock))}
			c.users[m] = u
		}
		if !slices.Contains(u.streams, stream) {
			u.streams = append(u.streams, stream)
		}
	}
}

// Add adds an action, which comes behind the latest record of one event and is recorded in another one; nil: none. Error: *Error when it
// has no order with an earlier one.
func (c *Checker) Add(a *Action, wait, record *Event) error {
	clock := c.clock[a.Stream]
	if wait != nil {
		for s, n := range wait.clock {
			clock[s] = max(clock[s], n)
		}
	}
	for k, x := range a.Accesses {
		m := memory{x.Device, x.Span.Space}
		if slices.ContainsFunc(a.Accesses[:k], func(y Access) bool { return m == memory{y.Device, y.Span.Space} }) {
			continue // the comparison was of all accesses to this memory
		}
		if err := c.touch(a, c.users[m]); err != nil {
			return err
		}
	}
	c.issued[a.Stream]++
	clock[a.Stream] = c.issued[a.Stream]
	if record != nil {
		record.clock = slices.Clone(clock)
	}
	return nil
}

// touch compares an action with all others that have touched a memory and may not have ended yet.
func (c *Checker) touch(a *Action, u *users) error {
	for _, s := range u.streams {
		if s == a.Stream {
			continue
		}
		list := u.lists[s].all
		for k := len(list) - 1; k >= 0 && list[k].at >= c.clock[a.Stream][s]; k-- {
			if x, clash := conflict(&list[k].Action, a); clash {
				return &Error{list[k].label(), a.label(), x.Device, x.Span}
			}
		}
	}
	l := &u.lists[a.Stream]
	l.all = append(l.all, user{c.issued[a.Stream], *a})
	if len(l.all) > l.most {
		c.drop(l, a.Stream, u.streams)
	}
	return nil
}

// drop drops the actions of a stream that have ended before whatever some streams do next.
func (c *Checker) drop(l *userList, stream int, streams []int) {
	const least = 64 // so that few are dropped one by one
	ended := c.issued[stream]
	for _, s := range streams {
		if s != stream {
			ended = min(ended, c.clock[s][stream])
		}
	}
	n := 0
	for n < len(l.all) && l.all[n].at < ended {
		n++
	}
	l.all = slices.Delete(l.all, 0, n)
	l.most = max(least, 2*len(l.all))
}

// Remembered returns how many actions are remembered.
func (c *Checker) Remembered() (n int) {
	for _, u := range c.users {
		for i := range u.lists {
			n += len(u.lists[i].all)
		}
	}
	return n
}

func (a *Action) label() string { return fmt.Sprintf("%v (stream %d)", a.Name, a.Stream) }

// conflict returns the bytes that two actions share and one of them writes.
func conflict(a, b *Action) (Access, bool) {
	for _, x := range a.Accesses {
		for _, y := range b.Accesses {
			if (x.Write || y.Write) && x.Device == y.Device && x.Span.Overlaps(y.Span) {
				from := max(x.Span.Offset, y.Span.Offset)
				return Access{Device: x.Device, Span: runtime.Span{Space: x.Span.Space, Offset: from, Bytes: min(x.Span.End(), y.Span.End()) - from}}, true
			}
		}
	}
	return Access{}, false
}
