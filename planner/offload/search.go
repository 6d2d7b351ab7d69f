package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// search is one run of a strategy: what it offers is simulated, and the best sequence is kept.
type search struct {
	*fractional
	sim       *schedule.Simulator
	limits    schedule.Limits
	best      candidate
	runs      int       // simulations so far
	failure   error     // of the last one that failed
	untilLoss []float64 // untilLoss[l]: the seconds of forwards l..n, 1..n+1

	// scratch, see latest and build
	ops             schedule.Sequence
	at              []int     // place of the prefetch of each activation
	starts, arrives []float64 // in reversed time: start of each backward; end of the transfer of each activation
	early           []early
}

// maxRuns bounds the simulations of improve.
const maxRuns = 30000

// maxStarts is how many sequences are improved.
const maxStarts = 8

// candidate is a simulated sequence; the zero value is none.
type candidate struct {
	seq      schedule.Sequence
	away     []bool // the activations that it offloads
	makespan float64
	peak     int64
}

// solve runs a strategy that may offload any activation: it refuses limits that are too small for that, and offloads
// nothing where nothing has to be. Errors: those of chain.Validate, ErrLink, *pipeline.InfeasibleError,
// schedule.ErrEndless, the context's.
func solve(ctx context.Context, name string, p strategy.Problem, run func(context.Context, *search) error) (schedule.Sequence, error) {
	k, err := feasibleCosts(name, p)
	if err != nil {
		return nil, err
	}
	k.bandwidth = p.Chain.BandwidthBeside(k.bandwidth)
	s, err := newSearch(k, p)
	if err != nil {
		return nil, err
	}
	if k.memory >= k.peak() {
		return s.build(make([]bool, k.n)), nil
	}
	if err := run(ctx, s); err != nil {
		return nil, err
	}
	switch {
	case s.best.seq != nil:
		return s.best.seq, nil
	case errors.Is(s.failure, schedule.ErrEndless):
		return nil, s.failure
	}
	return nil, fmt.Errorf("BUG: %s found no sequence for %d bytes: %w", name, p.Memory, s.failure)
}

func newSearch(k *costs, p strategy.Problem) (*search, error) {
	sim, err := schedule.NewSimulator(p.Chain)
	if err != nil {
		return nil, err
	}
	s := &search{
		fractional: newFractional(k), sim: sim, limits: schedule.Limits{Memory: p.Memory, Link: p.Link}, untilLoss: make([]float64, k.n+2),
		at: make([]int, k.n), starts: make([]float64, k.n+1), arrives: make([]float64, k.n),
	}
	for l := k.n; l >= 1; l-- {
		s.untilLoss[l] = s.untilLoss[l+1] + k.uF[l]
	}
	return s, nil
}

// fits reports whether every op fits when everything selected that it does not read is away.
func (s *search) fits(away []bool) bool {
	kept := 0.0
	for l := 1; l <= s.n; l++ {
		if kept+s.saved[l-1]+s.need(l) > s.memory {
			return false
		}
		if !away[l-1] {
			kept += s.saved[l-1]
		}
	}
	return true
}

// try simulates a sequence and keeps it when it is the best so far.
func (s *search) try(seq schedule.Sequence, away []bool) bool {
	s.runs++
	r, err := s.sim.Run(seq, s.limits)
	if err != nil {
		s.failure = err // a wait that never ends, because prefetches took what an op needs; other places may do
		return false
	}
	if !s.best.slower(r) {
		return false
	}
	s.best = newCandidate(seq, away, r)
	return true
}

func newCandidate(seq schedule.Sequence, away []bool, r *schedule.Result) candidate {
	return candidate{slices.Clone(seq), slices.Clone(away), r.Makespan, r.Peak}
}

// compare prefers less time, then a lower peak.
func (x candidate) compare(y candidate) int {
	return cmp.Or(cmp.Compare(x.makespan, y.makespan), cmp.Compare(x.peak, y.peak))
}

// slower reports whether the candidate is none, or loses against a result: by its makespan or, of equals, its peak.
func (x *candidate) slower(r *schedule.Result) bool {
	return x.seq == nil || r.Makespan < x.makespan || r.Makespan == x.makespan && r.Peak < x.peak
}

// improveBest makes a sequence of every selection, improves the fastest of them and keeps the best.
func (s *search) improveBest(ctx context.Context, selections [][]bool) error {
	var starts []candidate
	for _, away := range selections {
		s.best = candidate{}
		if s.offer(away) {
			starts = append(starts, s.best)
		}
	}
	if len(starts) == 0 {
		return nil // solve says why
	}
	slices.SortStableFunc(starts, candidate.compare)
	best := starts[0]
	for _, start := range starts[:min(len(starts), maxStarts)] {
		s.best = start
		if err := s.improve(ctx); err != nil {
			return err
		}
		if s.best.compare(best) < 0 {
			best = s.best
		}
	}
	s.best = best
	return nil
}

// improve changes the selection of the best sequence as long as that makes a better one: an activation more or
// less, or one instead of another. It stops after maxRuns simulations.
func (s *search) improve(ctx context.Context) error {
	for better := true; better; {
		better = false
		for i := range s.n {
			if err := ctx.Err(); err != nil || s.runs > maxRuns {
				return err
			}
			for j := range i + 1 {
				better = s.exchange(i, j) || better
			}
		}
	}
	return nil
}

// exchange offers the best selection with i and j changed: both when one is away and one is kept, i alone when i = j.
func (s *search) exchange(i, j int) (better bool) {
	away := s.best.away
	if i == j && s.saved[i] == 0 || i != j && away[i] == away[j] {
		return false
	}
	away = slices.Clone(away)
	away[i] = !away[i] && s.saved[i] > 0
	if i != j {
		away[j] = !away[j] && s.saved[j] > 0
	}
	return s.offer(away)
}
