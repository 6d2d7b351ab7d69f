package remat

import (
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// candidate is a simulated sequence; the zero value is none.
type candidate struct {
	seq      schedule.Sequence
	makespan float64 // seconds
	peak     int64   // bytes
}

func (x candidate) faster(than candidate) bool {
	return than.seq == nil || x.makespan < than.makespan || x.makespan == than.makespan && x.peak < than.peak
}

// trials keeps the best of the sequences that a heuristic tries.
type trials struct{ fastest, smallest candidate }

// add counts a sequence as one to choose where it fits in the memory.
func (t *trials) add(now candidate, memory int64) {
	if now.peak <= memory && now.faster(t.fastest) {
		t.fastest = now
	}
	if t.smallest.seq == nil || now.peak < t.smallest.peak {
		t.smallest = now
	}
}

// best returns the fastest sequence that fits. Errors: *pipeline.InfeasibleError with the smallest peak seen.
func (t *trials) best(name string, p strategy.Problem) (schedule.Sequence, error) {
	if t.fastest.seq == nil {
		return nil, infeasible(name, p.Chain, p.Memory, t.smallest.peak, t.smallest.seq)
	}
	return t.fastest.seq, nil
}
