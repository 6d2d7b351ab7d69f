package multichain

import (
	"math"
	"math/bits"
)

// state is a subproblem of Theorem 3: the layers that each branch has left, whose gradients are kept, and the slots.
type state struct {
	left  [mostBranches]uint16
	keep  uint8
	slots uint16
}

// choice is the best canonical first move: count forwards on a branch, then the rest, then AdjChain on count-1 layers.
// count 0: the loss is next.
type choice struct {
	cost          float64
	branch, count int
}

// solver is the dynamic program of Theorem 3.
type solver struct {
	join   Join
	single *single
	table  map[state]choice
}

func (s *solver) start(slots int) state {
	at := state{slots: uint16(slots)}
	for i, l := range s.join.Lengths {
		at.left[i] = uint16(l)
		if s.join.Keep[i] {
			at.keep |= 1 << i
		}
	}
	return at
}

func (s *solver) best(at state) choice {
	if c, ok := s.table[at]; ok {
		return c
	}
	c := choice{cost: math.Inf(1)}
	switch {
	case int(at.slots) < s.smallest(at):
	case at.left == [mostBranches]uint16{}:
		c.cost = s.join.Loss
	default:
		c = s.move(at)
	}
	s.table[at] = c
	return c
}

// move tries every first move: equation 1.4.
func (s *solver) move(at state) choice {
	best := choice{cost: math.Inf(1)}
	for k := range s.join.Lengths {
		for i := 1; i <= int(at.left[k]); i++ {
			behind := s.behind(at, k)
			if behind < least(i-1) {
				break
			}
			cost := float64(i)*s.join.Forward + s.best(at.after(k, i)).cost + s.single.cost[behind][i-1]
			if cost < best.cost {
				best = choice{cost, k, i}
			}
		}
	}
	return best
}

// after returns the problem that is left once count forwards of branch k have run from a stored input.
func (at state) after(k, count int) state {
	at.left[k] -= uint16(count)
	at.keep |= 1 << k
	at.slots--
	return at
}

// behind returns the slots that the layers of branch k have once all others are done.
func (s *solver) behind(at state, k int) int {
	return int(at.slots) - bits.OnesCount8(at.keep&^(1<<k))
}

// least returns the slots that AdjChain on l layers needs.
func least(l int) int {
	if l == 0 {
		return 2
	}
	return 3
}

// smallest is Lemma 2 for a subproblem.
func (s *solver) smallest(at state) int {
	sub := Join{Lengths: make([]int, len(s.join.Lengths)), Keep: make([]bool, len(s.join.Lengths))}
	for i := range sub.Lengths {
		sub.Lengths[i], sub.Keep[i] = int(at.left[i]), at.keep>>i&1 == 1
	}
	return sub.Smallest()
}

// emit appends the schedule of a subproblem.
func (s *solver) emit(out Schedule, at state) Schedule {
	c := s.best(at)
	if c.count == 0 {
		out = append(out, Op{Kind: Loss})
		return s.drop(out, at)
	}
	first := s.join.Lengths[c.branch] - int(at.left[c.branch])
	out = append(out, Op{Store, c.branch, first})
	out = forwards(out, c.branch, first, c.count)
	out = s.emit(out, at.after(c.branch, c.count))
	out = s.single.emit(out, c.branch, first, c.count-1, s.behind(at, c.branch))
	if at.keep>>c.branch&1 == 0 {
		out = append(out, Op{Drop, c.branch, 0})
	}
	return out
}

// drop appends the drops of what the loss left of branches that have nothing to run and nothing to keep.
func (s *solver) drop(out Schedule, at state) Schedule {
	for i := range s.join.Lengths {
		if at.keep>>i&1 == 0 {
			out = append(out, Op{Drop, i, 0})
		}
	}
	return out
}
