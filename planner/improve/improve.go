// Package improve makes sequences better by local moves, judged by simulation.
//
// A Search starts from any sequence that keeps the rules and the limits, and only ever goes to a better one, so it can be
// stopped at any time. It has no clock and no randomness: its budget is a number of simulations. Moves: drop a pair of
// transfers, shift a transfer, add a pair, keep what is recomputed (with or without offloading it meanwhile), recompute
// what is offloaded. Place makes a first sequence from a choice of activations to offload.
package improve

import (
	"context"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Search is a descent from one sequence. It is not safe for concurrent use.
//
// Invariants: the best sequence keeps the rules and runs within the limits; it never gets worse; the same calls give
// the same sequences.
type Search struct {
	c      *chain.Chain
	limits schedule.Limits
	sim    *schedule.Simulator
	best   schedule.Sequence
	score  score
	start  []float64 // of each op of best, seconds
	steps  int       // simulations so far
	done   bool
	buffer schedule.Sequence
}

// score orders sequences: faster first, then fewer bytes moved, then fewer ops, then a lower peak.
type score struct {
	makespan float64 // seconds
	moved    float64 // seconds on the link
	ops      int
	peak     int64
}

// less reports whether a is better than b. Differences in makespan that the order of a sum can make do not count.
func (a score) less(b score) bool {
	switch tolerance := 1e-12 * b.makespan; {
	case a.makespan < b.makespan-tolerance:
		return true
	case a.makespan > b.makespan+tolerance:
		return false
	case a.moved < b.moved*(1-1e-12):
		return true
	case a.moved > b.moved*(1+1e-12):
		return false
	case a.ops != b.ops:
		return a.ops < b.ops
	}
	return a.peak < b.peak
}

// New starts a search. Errors: those of schedule.Simulate for the sequence.
func New(c *chain.Chain, limits schedule.Limits, seq schedule.Sequence) (*Search, error) {
	sim, err := schedule.NewSimulator(c)
	if err != nil {
		return nil, err
	}
	s := &Search{c: c, limits: limits, sim: sim}
	r, err := sim.Run(seq, limits)
	if err != nil {
		return nil, err
	}
	s.adopt(seq, r)
	return s, nil
}

// Best returns the best sequence so far and its makespan in seconds.
func (s *Search) Best() (schedule.Sequence, float64) { return slices.Clone(s.best), s.score.makespan }

// Steps returns the number of simulations so far.
func (s *Search) Steps() int { return s.steps }

// Run searches for at most so many simulations more. It returns the context's error when that ends first; the best
// sequence so far is kept in any case.
func (s *Search) Run(ctx context.Context, steps int) error {
	last := s.steps + steps
	for kind := 0; kind < len(moves) && !s.done; {
		better := false
		for seq := range moves[kind](s) {
			if s.steps >= last {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if better = s.try(seq); better {
				break
			}
		}
		if better {
			kind = 0
		} else {
			kind++
		}
		s.done = kind == len(moves)
	}
	return ctx.Err()
}

// try adopts a sequence if it is better.
func (s *Search) try(seq schedule.Sequence) bool {
	s.steps++
	r, err := s.sim.Run(seq, s.limits)
	if err != nil || !s.rate(seq, r).less(s.score) {
		return false
	}
	s.adopt(seq, r)
	return true
}

func (s *Search) adopt(seq schedule.Sequence, r *schedule.Result) {
	s.score = s.rate(seq, r)
	s.best = slices.Clone(seq)
	s.start = append(s.start[:0], r.Start...)
}

func (s *Search) rate(seq schedule.Sequence, r *schedule.Result) score {
	sc := score{makespan: r.Makespan, peak: r.Peak, ops: len(seq)}
	for i, op := range seq {
		if op.Kind.Transfer() {
			sc.moved += r.End[i] - r.Start[i]
		}
	}
	return sc
}
