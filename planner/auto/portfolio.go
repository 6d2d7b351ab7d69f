package auto

import (
	"fmt"
	"slices"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// portfolio is one run.
type portfolio struct {
	strategy.Problem
	bound   float64
	entries []*entry // in the order of Members
}

// entry is a member with its result.
type entry struct {
	Candidate
	member strategy.Sequencer
	err    error
	proved float64 // seconds, of the chain itself
}

// judge simulates the sequence of a member and keeps its figures.
func (e *entry) judge(p strategy.Problem, seq schedule.Sequence) error {
	r, err := schedule.Simulate(p.Chain, seq, p.Limits())
	if err != nil {
		return fmt.Errorf("BUG: its sequence cannot run: %w", err)
	}
	e.Sequence = seq
	e.take(r)
	return nil
}

// ranking returns the candidates with a sequence, the best first.
func (a *portfolio) ranking() (best []*Candidate) {
	for _, e := range a.entries {
		if e.Sequence != nil {
			best = append(best, &e.Candidate)
		}
	}
	slices.SortStableFunc(best, (*Candidate).compare)
	return best
}

const (
	starts  = 4       // results that are improved
	kicks   = 4       // random changes of the best sequence that are followed at the same time
	patient = 16      // rounds of kicks without success after which the search ends, by default
	work    = 1 << 23 // ops in the simulations of one search, by default
)

// distinct returns the first few different sequences.
func distinct(ranking []*Candidate) (out []*Candidate) {
	for _, c := range ranking {
		if len(out) < starts && !slices.ContainsFunc(out, func(o *Candidate) bool { return slices.Equal(o.Sequence, c.Sequence) }) {
			out = append(out, c)
		}
	}
	return out
}
