// Package hazard proves that streams reuse memory only behind its last user: every two actions on the same bytes of a device, of
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
	c := checker{
		actions: actions, clock: make([][]int, streams), issued: make([]int, streams),
		recorded: make([][]int, events), users: map[memory][][]user{},
	}
	for s := range c.clock {
		c.clock[s] = make([]int, streams)
	}
	for i := range actions {
		if err := c.issue(i); err != nil {
			return err
		}
	}
	return nil
}

type checker struct {
	actions  []Action
	clock    [][]int // by stream, of its next action
	issued   []int   // by stream
	recorded [][]int // by event: the clock behind its latest record; nil: it has none
	users    map[memory][][]user
}

// memory is one of a device's.
type memory struct {
	device int
	space  runtime.Space
}

// user is an action that has touched a memory, and which of its stream it is.
type user struct{ at, action int }

func (c *checker) issue(i int) error {
	a := &c.actions[i]
	clock := c.clock[a.Stream]
	if a.Wait != None {
		for s, n := range c.recorded[a.Wait] {
			clock[s] = max(clock[s], n)
		}
	}
	for k, x := range a.Accesses {
		m := memory{x.Device, x.Span.Space}
		if slices.ContainsFunc(a.Accesses[:k], func(y Access) bool { return m == memory{y.Device, y.Span.Space} }) {
			continue // the comparison was of all accesses to this memory
		}
		if err := c.touch(i, m); err != nil {
			return err
		}
	}
	c.issued[a.Stream]++
	clock[a.Stream] = c.issued[a.Stream]
	if a.Record != None {
		c.recorded[a.Record] = slices.Clone(clock)
	}
	return nil
}

// touch compares an action with all others that have touched a memory and may not have ended yet.
func (c *checker) touch(i int, m memory) error {
	a, users := &c.actions[i], c.users[m]
	if users == nil {
		users = make([][]user, len(c.clock))
		c.users[m] = users
	}
	for s, list := range users {
		if s == a.Stream {
			continue
		}
		for k := len(list) - 1; k >= 0 && list[k].at >= c.clock[a.Stream][s]; k-- {
			if x, clash := conflict(&c.actions[list[k].action], a); clash {
				return &Error{c.label(list[k].action), c.label(i), x.Device, x.Span}
			}
		}
	}
	users[a.Stream] = append(users[a.Stream], user{c.issued[a.Stream], i})
	return nil
}

func (c *checker) label(i int) string {
	return fmt.Sprintf("%v (stream %d)", c.actions[i].Name, c.actions[i].Stream)
}

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
