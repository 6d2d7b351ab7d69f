package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
)

// rule says which weights a minibatch sees, and when a stage updates them. Version v of a stage's weights is what v updates
// have made of the initial ones.
type rule struct {
	mode  pipeline.Versions
	group int // minibatches whose gradients make one update: M of a flush plan, G of 2BW, else 1 for each device of the stage
	local int // of these, on one device
	// entered says, with vertical_sync, how many updates the first stage has done when minibatch m enters.
	entered func(m int) int
}

// version returns the version that minibatch m, counted from the start of a run, sees in a stage whose latest one is latest;
// base is the version that the run began with.
//
//	latest, flush, stash   the latest one (PipeDream, section 3.3; stash: also in its backward)
//	vertical_sync          the one that was the first stage's latest when the minibatch entered (PipeDream, section 3.3)
//	double_buffered        group t sees version t-1: W(t+1) = W(t) - ν ∇f(W(t-1)) (PipeDream-2BW)
func (r rule) version(m, base, latest int) int {
	switch r.mode {
	case pipeline.VerticalSync:
		return base + r.entered(m)
	case pipeline.DoubleBuffered:
		return base + max(0, m/r.group-1)
	}
	return latest
}

// shelf keeps the versions of a stage's weights that somebody may still need, each in a slot.
//
// Invariants: the latest version has a slot; so has every version that a minibatch in flight sees, or one to come may see.
type shelf struct {
	rule
	base   int // the latest version when the run began
	latest int
	slots  []int // by slot: its version; none: free
	flying []sight
	next   int // minibatches below it have entered
	summed int // minibatches whose gradients are summed since the latest update
}

// sight is what a minibatch in flight sees.
type sight struct{ minibatch, version int }

// newShelf returns a shelf of so many slots, of which the first holds version 0.
func newShelf(r rule, slots int) *shelf {
	s := &shelf{rule: r, slots: slices.Repeat([]int{none}, slots), flying: make([]sight, 0, 64)}
	s.slots[0] = 0
	return s
}

// begin starts a run with an empty pipeline; the latest version is in slot 0.
func (s *shelf) begin() {
	s.base, s.next, s.summed, s.flying = s.latest, 0, 0, s.flying[:0]
	s.home()
}

// home says that the latest version is in slot 0 and no other is left.
func (s *shelf) home() {
	for i := range s.slots {
		s.slots[i] = none
	}
	s.slots[0] = s.latest
}

// enter returns the slot of the weights that minibatch m sees. With latest a backward asks again (see).
func (s *shelf) enter(m int) (slot int, err error) {
	v := s.version(m, s.base, s.latest)
	s.flying = append(s.flying, sight{m, v})
	s.next = max(s.next, m+s.group/s.local)
	return s.slot(m, v)
}

// see returns the slot of the weights that the backward of minibatch m sees.
func (s *shelf) see(m int) (slot int, err error) {
	if s.mode == pipeline.Latest {
		return s.slot(m, s.latest)
	}
	i := slices.IndexFunc(s.flying, func(f sight) bool { return f.minibatch == m })
	return s.slot(m, s.flying[i].version)
}

func (s *shelf) slot(m, version int) (int, error) {
	if i := slices.Index(s.slots, version); i >= 0 {
		return i, nil
	}
	return none, fmt.Errorf("%w: minibatch %d needs version %d of the weights, which is gone: the latest is %d", ErrPlan, m, version, s.latest)
}

// move is an update: the weights of slot from become a new version in slot to.
type move struct{ from, to int }

// leave counts the gradients of minibatch m, which has done its backward. due says that an update follows.
func (s *shelf) leave(m int) (due bool) {
	s.flying = slices.DeleteFunc(s.flying, func(f sight) bool { return f.minibatch == m })
	s.summed++
	return s.summed == s.local
}

// update makes room for the next version. A slot whose version nobody will see is used again, the latest one's itself if
// possible; to is len(slots) when there is none.
func (s *shelf) update() move {
	from := slices.Index(s.slots, s.latest)
	s.summed = 0
	s.latest++
	oldest := s.version(s.next, s.base, s.latest)
	if s.mode == pipeline.Latest {
		oldest = s.latest
	}
	for _, f := range s.flying {
		if s.mode != pipeline.Latest {
			oldest = min(oldest, f.version)
		}
	}
	to := none
	for i, v := range s.slots {
		if v < oldest || s.unseen(v) {
			s.slots[i] = none
			if to == none || i == from {
				to = i
			}
		}
	}
	if to == none {
		to = len(s.slots)
		s.slots = append(s.slots, none)
	}
	s.slots[to] = s.latest
	return move{from, to}
}

// unseen reports whether no minibatch, in flight or to come, sees a version.
func (s *shelf) unseen(v int) bool {
	switch s.mode {
	case pipeline.Stash:
		return !slices.ContainsFunc(s.flying, func(f sight) bool { return f.version == v })
	case pipeline.Latest, pipeline.Flush:
		return true
	}
	return false
}
