// Package multichain plans the training of a Join: several chains of layers that meet in one loss, as siamese networks and cross-modal
// embeddings do. In a Join all layers have the same cost, and all activations take one slot of memory. Strategies carries the plans
// over to layers with costs of their own. Source: A. Shilova's thesis, chapter 1, Theorem 3.
// Multi-b (problem 4) contains Multi-δ, which keeps every input gradient (problem 2), and Multi-∅, which keeps none (problem 3).
package multichain

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/chain"
)

// Join is K chains that meet in a loss.
type Join struct {
	// Lengths are the layers of each branch, 0 or more.
	Lengths []int
	// Keep says whose input gradient must be in memory at the end: b of Multi-b. nil keeps none: Multi-∅.
	Keep []bool
	// Forward, Backward and Loss are the times u_F, u_B, u_L of one step each, seconds, 0 or more.
	Forward, Backward, Loss float64
}

var (
	// ErrJoin means that a join is not one: no branch, a negative length or time, keeps that do not match.
	ErrJoin = errors.New("bad join")
	// ErrTooLarge means that the table of the dynamic program would be too large.
	ErrTooLarge = errors.New("join too large")
)

// InfeasibleError says that the slots do not suffice.
type InfeasibleError struct{ Slots, Smallest int }

func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("multichain: %d slots are too few: the smallest number that works is %d", e.Slots, e.Smallest)
}

const (
	mostBranches = chain.MostBranches
	mostStates   = 1 << 24 // of the table: about a gigabyte
)

// check validates a join and returns it with Keep of the right length.
func (j Join) check() (Join, error) {
	if len(j.Lengths) == 0 || len(j.Lengths) > mostBranches {
		return j, fmt.Errorf("%w: %d branches, want 1 to %d", ErrJoin, len(j.Lengths), mostBranches)
	}
	if j.Keep == nil {
		j.Keep = make([]bool, len(j.Lengths))
	}
	if len(j.Keep) != len(j.Lengths) {
		return j, fmt.Errorf("%w: %d branches and %d keeps", ErrJoin, len(j.Lengths), len(j.Keep))
	}
	states, total := 1.0, 0.0
	for i, l := range j.Lengths {
		if l < 0 {
			return j, fmt.Errorf("%w: branch %d has %d layers", ErrJoin, i, l)
		}
		states *= 2 * float64(l+1)
		total += float64(l + 1)
	}
	for _, t := range []float64{j.Forward, j.Backward, j.Loss} {
		if !(t >= 0) || math.IsInf(t, 0) {
			return j, fmt.Errorf("%w: a time of %v", ErrJoin, t)
		}
	}
	if states *= total; states > mostStates {
		return j, fmt.Errorf("%w: branches of %v layers need a table of %.0f entries, the limit is %d", ErrTooLarge, j.Lengths, states, mostStates)
	}
	return j, nil
}

// Smallest returns the fewest slots that work (Lemma 2).
func (j Join) Smallest() int {
	slots, spare := len(j.Lengths), false
	for i, l := range j.Lengths {
		if l > 0 {
			slots++
		}
		spare = spare || l == 1 || l == 0 && !j.keeps(i)
	}
	if spare || slots == len(j.Lengths) {
		return slots
	}
	return slots + 1
}

func (j Join) keeps(branch int) bool { return branch < len(j.Keep) && j.Keep[branch] }

// Solve returns a fastest schedule within so many slots. Errors: ErrJoin, ErrTooLarge, *InfeasibleError.
func Solve(j Join, slots int) (Schedule, error) {
	j, err := j.check()
	if err != nil {
		return nil, err
	}
	if smallest := j.Smallest(); slots < smallest {
		return nil, &InfeasibleError{Slots: slots, Smallest: smallest}
	}
	total := len(j.Lengths)
	for _, l := range j.Lengths {
		total += l
	}
	slots = min(slots, total) // more are of no use
	s := &solver{join: j, single: newSingle(j, slots, slices.Max(j.Lengths)), table: map[state]choice{}}
	return s.emit(nil, s.start(slots)), nil
}
