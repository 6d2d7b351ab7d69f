package order

import (
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
)

// Rule says which weights a minibatch sees, and when a stage updates them. Version v of a stage's weights is what v updates
// have made of the initial ones.
type Rule struct {
	Mode   pipeline.Versions
	Group  int // minibatches whose gradients make one update: M of a flush plan, G of 2BW, else as few as give every device of the stage one
	Speaks int // minibatches for which one end speaks
	// entered says, with vertical_sync, how many updates the first stage has done when minibatch m enters.
	entered func(m int) int
}

// version returns the version that minibatch m, counted from the start of a run, sees in a stage. The stage's latest version
// is latest; base is the version that the run began with.
//
//	latest, flush, stash   the latest one (PipeDream, section 3.3; stash: also in its backward)
//	vertical_sync          the one that was the first stage's latest when the minibatch entered (PipeDream, section 3.3)
//	double_buffered        group t sees version t-1: W(t+1) = W(t) - ν ∇f(W(t-1)) (PipeDream-2BW)
func (r Rule) version(m, base, latest int) int {
	switch r.Mode {
	case pipeline.VerticalSync:
		return base + r.entered(m)
	case pipeline.DoubleBuffered:
		return base + max(0, m/r.Group-1)
	}
	return latest
}

// WeightStash keeps the versions of a stage's weights that a minibatch may still need, each in a slot. The sums of gradients that grow have
// slots of their own: minibatches of one update may begin their backward before all of the update before have ended theirs.
//
// Invariants: the latest version has a slot; so has every version that a minibatch in flight sees, or one to come may see.
// Updates are made in the order of their numbers, each when all its minibatches have ended, on whatever device.
type WeightStash struct {
	Rule
	base   int // the latest version when the run began
	Latest int
	Slots  []int // by slot: its version; none: free
	Flying []StashedUse
	here   []bool // by residue: its minibatches are on this device
	run    *Bound
	next   int   // the first of them here that has not entered
	early  []int // others behind it that have
	ended  []int // by update, the next one first: its minibatches that have ended
	Sums   []sum // by slot
}

// sum is the sum of the gradients of an update on this device.
type sum struct {
	update int                  // counted from the start of the run; none: free
	tasks  [pipeline.W + 1]bool // by kind: one has written gradients, the others add
}

// StashedUse pairs a minibatch in flight with the version that it sees.
type StashedUse struct{ Minibatch, Version int }

// NewWeightStash returns a weight stash of so many slots, of which the first holds version 0, and of so many for sums, for the
// minibatches that are here.
func NewWeightStash(r Rule, here []bool, slots, sums int) *WeightStash {
	s := &WeightStash{Rule: r, here: here, Slots: slices.Repeat([]int{none}, slots), Sums: slices.Repeat([]sum{{update: none}}, sums), Flying: make([]StashedUse, 0, 64)}
	s.Slots[0] = 0
	return s
}

// Begin starts a run with an empty pipeline; the latest version is in slot 0.
func (s *WeightStash) Begin(run *Bound) {
	s.base, s.run, s.next = s.Latest, run, slices.Index(s.here, true)
	s.early, s.ended, s.Flying = s.early[:0], s.ended[:0], s.Flying[:0]
	for i := range s.Sums {
		s.Sums[i].update = none
	}
	s.compact()
}

// Forget makes the stash what it is before all runs.
func (s *WeightStash) Forget() { s.Latest = 0 }

// compact says that the latest version is in slot 0 and no other is left.
func (s *WeightStash) compact() {
	for i := range s.Slots {
		s.Slots[i] = none
	}
	s.Slots[0] = s.Latest
}

// Enter returns the slot of the weights that minibatch m sees. With latest a backward asks again (see).
func (s *WeightStash) Enter(m int) (slot int, err error) {
	v := s.version(m, s.base, s.Latest)
	s.Flying = append(s.Flying, StashedUse{m, v})
	s.early = append(s.early, m)
	for s.passes(s.next) {
		s.next++
	}
	return s.slot(m, v)
}

// passes reports whether minibatch m is not to come: it has entered, which is forgotten, or it is on another device.
func (s *WeightStash) passes(m int) bool {
	if !s.here[m%len(s.here)] {
		return true
	}
	i := slices.Index(s.early, m)
	if i < 0 {
		return false
	}
	s.early = slices.Delete(s.early, i, i+1)
	return true
}

// See returns the slot of the weights that the backward of minibatch m sees.
func (s *WeightStash) See(m int) (slot int, err error) {
	if s.Mode == pipeline.Latest {
		return s.slot(m, s.Latest)
	}
	i := slices.IndexFunc(s.Flying, func(f StashedUse) bool { return f.Minibatch == m })
	return s.slot(m, s.Flying[i].Version)
}

func (s *WeightStash) slot(m, version int) (int, error) {
	if i := slices.Index(s.Slots, version); i >= 0 {
		return i, nil
	}
	return none, fmt.Errorf("%w: minibatch %d needs version %d of the weights, which is not there: the latest is %d", ErrPlan, m, version, s.Latest)
}

// Move is an update: the weights of slot from become a new version in slot to, by the gradients in a slot of the sums.
type Move struct{ From, To, Sum int }

// Leave says that minibatch m has done its last task on this device.
func (s *WeightStash) Leave(m int) {
	s.Flying = slices.DeleteFunc(s.Flying, func(f StashedUse) bool { return f.Minibatch == m })
}

// Sum returns the slot in which the gradients of an update are summed. It is len(sums)-1 and new when all were in use; fresh
// says that nothing has been summed.
func (s *WeightStash) Sum(update int) (slot int, fresh bool) {
	free := none
	for i := range s.Sums {
		switch s.Sums[i].update {
		case update:
			return i, false
		case none:
			free = i
		}
	}
	if free == none {
		free = len(s.Sums)
		s.Sums = append(s.Sums, sum{})
	}
	s.Sums[free] = sum{update: update}
	return free, true
}

// Adds reports whether the gradients of a task are added to those of an earlier one of its kind. The first one writes.
func (s *sum) Adds(kind pipeline.Kind) bool {
	add := s.tasks[kind]
	s.tasks[kind] = true
	return add
}

// End counts minibatch m, which has ended in the stage on whatever device, and those for which it speaks.
func (s *WeightStash) End(m int) {
	ahead := m/s.Group - (s.Latest - s.base)
	for len(s.ended) <= ahead {
		s.ended = append(s.ended, 0)
	}
	s.ended[ahead] += s.Speaks
}

// Due reports whether all minibatches of the next update have ended.
func (s *WeightStash) Due() bool { return len(s.ended) > 0 && s.ended[0] == s.Group }

// DueLast returns the last minibatch of the next update.
func (s *WeightStash) DueLast() int { return (s.Latest-s.base+1)*s.Group - 1 }

// Update makes room for the next version. A slot whose version nobody will see is used again, the latest one's itself if
// possible; to is len(slots) when there is none.
func (s *WeightStash) Update() Move {
	from := slices.Index(s.Slots, s.Latest)
	sum, _ := s.Sum(s.Latest - s.base)
	s.Sums[sum].update = none
	s.ended = slices.Delete(s.ended, 0, 1)
	s.Latest++
	oldest, to := s.oldest(), none
	for i, v := range s.Slots {
		if v < oldest || s.unseen(v) {
			s.Slots[i] = none
			if to == none || i == from {
				to = i
			}
		}
	}
	if to == none {
		to = len(s.Slots)
		s.Slots = append(s.Slots, none)
	}
	s.Slots[to] = s.Latest
	return Move{from, to, sum}
}

// oldest returns the oldest version that a minibatch in flight sees, or one to come may see. Of these one out of R in a row
// sees it: another one as many behind sees no older one.
func (s *WeightStash) oldest() int {
	oldest := s.Latest
	if s.Mode == pipeline.Latest {
		return oldest
	}
	for m := s.next; m < min(s.next+len(s.here), s.run.End()); m++ {
		oldest = min(oldest, s.version(m, s.base, s.Latest))
	}
	for _, f := range s.Flying {
		oldest = min(oldest, f.Version)
	}
	return oldest
}

// unseen reports whether no minibatch, in flight or to come, sees a version.
func (s *WeightStash) unseen(v int) bool {
	switch s.Mode {
	case pipeline.Stash:
		return !slices.ContainsFunc(s.Flying, func(f StashedUse) bool { return f.Version == v })
	case pipeline.Latest, pipeline.Flush:
		return true
	}
	return false
}
