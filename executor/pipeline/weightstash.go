package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
)

// rule says which weights a minibatch sees, and when a stage updates them. Version v of a stage's weights is what v updates
// have made of the initial ones.
type rule struct {
	mode   pipeline.Versions
	group  int // minibatches whose gradients make one update: M of a flush plan, G of 2BW, else as few as give every device of the stage one
	speaks int // minibatches for which one end speaks
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

// weightStash keeps the versions of a stage's weights that somebody may still need, each in a slot, and the sums of gradients that
// grow, each in a slot of its own: minibatches of one update may begin their backward before all of the update before have
// ended theirs.
//
// Invariants: the latest version has a slot; so has every version that a minibatch in flight sees, or one to come may see.
// Updates are made in the order of their numbers, each when all its minibatches have ended, on whatever device.
type weightStash struct {
	rule
	base   int // the latest version when the run began
	latest int
	slots  []int // by slot: its version; none: free
	flying []stashedUse
	here   []bool // by residue: its minibatches are on this device
	run    *bound
	next   int   // the first of them here that has not entered
	early  []int // others behind it that have
	ended  []int // by update, the next one first: its minibatches that have ended
	sums   []sum // by slot
}

// sum is the sum of the gradients of an update on this device.
type sum struct {
	update int                  // counted from the start of the run; none: free
	tasks  [pipeline.W + 1]bool // by kind: one has written gradients, the others add
}

// stashedUse is what a minibatch in flight sees.
type stashedUse struct{ minibatch, version int }

// newWeightStash returns a weight stash of so many slots, of which the first holds version 0, and of so many for sums, for the
// minibatches that are here.
func newWeightStash(r rule, here []bool, slots, sums int) *weightStash {
	s := &weightStash{rule: r, here: here, slots: slices.Repeat([]int{none}, slots), sums: slices.Repeat([]sum{{update: none}}, sums), flying: make([]stashedUse, 0, 64)}
	s.slots[0] = 0
	return s
}

// begin starts a run with an empty pipeline; the latest version is in slot 0.
func (s *weightStash) begin(run *bound) {
	s.base, s.run, s.next = s.latest, run, slices.Index(s.here, true)
	s.early, s.ended, s.flying = s.early[:0], s.ended[:0], s.flying[:0]
	for i := range s.sums {
		s.sums[i].update = none
	}
	s.compact()
}

// forget makes the stash what it is before all runs.
func (s *weightStash) forget() { s.latest = 0 }

// compact says that the latest version is in slot 0 and no other is left.
func (s *weightStash) compact() {
	for i := range s.slots {
		s.slots[i] = none
	}
	s.slots[0] = s.latest
}

// enter returns the slot of the weights that minibatch m sees. With latest a backward asks again (see).
func (s *weightStash) enter(m int) (slot int, err error) {
	v := s.version(m, s.base, s.latest)
	s.flying = append(s.flying, stashedUse{m, v})
	s.early = append(s.early, m)
	for s.passes(s.next) {
		s.next++
	}
	return s.slot(m, v)
}

// passes reports whether minibatch m is not to come: it has entered, which is forgotten, or it is on another device.
func (s *weightStash) passes(m int) bool {
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

// see returns the slot of the weights that the backward of minibatch m sees.
func (s *weightStash) see(m int) (slot int, err error) {
	if s.mode == pipeline.Latest {
		return s.slot(m, s.latest)
	}
	i := slices.IndexFunc(s.flying, func(f stashedUse) bool { return f.minibatch == m })
	return s.slot(m, s.flying[i].version)
}

func (s *weightStash) slot(m, version int) (int, error) {
	if i := slices.Index(s.slots, version); i >= 0 {
		return i, nil
	}
	return none, fmt.Errorf("%w: minibatch %d needs version %d of the weights, which is not there: the latest is %d", ErrPlan, m, version, s.latest)
}

// move is an update: the weights of slot from become a new version in slot to, by the gradients in a slot of the sums.
type move struct{ from, to, sum int }

// leave says that minibatch m has done its last task on this device.
func (s *weightStash) leave(m int) {
	s.flying = slices.DeleteFunc(s.flying, func(f stashedUse) bool { return f.minibatch == m })
}

// sum returns the slot in which the gradients of an update are summed. It is len(sums)-1 and new when all were in use; fresh
// says that nothing has been summed.
func (s *weightStash) sum(update int) (slot int, fresh bool) {
	free := none
	for i := range s.sums {
		switch s.sums[i].update {
		case update:
			return i, false
		case none:
			free = i
		}
	}
	if free == none {
		free = len(s.sums)
		s.sums = append(s.sums, sum{})
	}
	s.sums[free] = sum{update: update}
	return free, true
}

// adds reports whether the gradients of a task are added to those of an earlier one of its kind. The first one writes.
func (s *sum) adds(kind pipeline.Kind) bool {
	add := s.tasks[kind]
	s.tasks[kind] = true
	return add
}

// end counts minibatch m, which has ended in the stage on whatever device, and those for which it speaks.
func (s *weightStash) end(m int) {
	ahead := m/s.group - (s.latest - s.base)
	for len(s.ended) <= ahead {
		s.ended = append(s.ended, 0)
	}
	s.ended[ahead] += s.speaks
}

// due reports whether all minibatches of the next update have ended.
func (s *weightStash) due() bool { return len(s.ended) > 0 && s.ended[0] == s.group }

// dueLast returns the last minibatch of the next update.
func (s *weightStash) dueLast() int { return (s.latest-s.base+1)*s.group - 1 }

// update makes room for the next version. A slot whose version nobody will see is used again, the latest one's itself if
// possible; to is len(slots) when there is none.
func (s *weightStash) update() move {
	from := slices.Index(s.slots, s.latest)
	sum, _ := s.sum(s.latest - s.base)
	s.sums[sum].update = none
	s.ended = slices.Delete(s.ended, 0, 1)
	s.latest++
	oldest, to := s.oldest(), none
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
	return move{from, to, sum}
}

// oldest returns the oldest version that a minibatch in flight sees, or one to come may see. Of these one out of R in a row
// sees it: another one as many behind sees no older one.
func (s *weightStash) oldest() int {
	oldest := s.latest
	if s.mode == pipeline.Latest {
		return oldest
	}
	for m := s.next; m < min(s.next+len(s.here), s.run.end()); m++ {
		oldest = min(oldest, s.version(m, s.base, s.latest))
	}
	for _, f := range s.flying {
		oldest = min(oldest, f.version)
	}
	return oldest
}

// unseen reports whether no minibatch, in flight or to come, sees a version.
func (s *weightStash) unseen(v int) bool {
	switch s.mode {
	case pipeline.Stash:
		return !slices.ContainsFunc(s.flying, func(f stashedUse) bool { return f.version == v })
	case pipeline.Latest, pipeline.Flush:
		return true
	}
	return false
}
