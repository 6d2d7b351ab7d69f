package remat

// periodic: segments of equal length, of which only the inputs are stored; each is run again before its backward.
//
// Paper: T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear memory cost", 2016; the segments are those of
// PyTorch's checkpoint_sequential, thesis section 2.4.4 ("sequential"). O(n), or O(n^2) to try every number of segments.

import (
	"context"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Periodic returns the sequence with the given number of segments, from 1 to the number of layers without the
// loss. Each segment has L/segments layers, rounded down; the last one has the rest and the loss too. Every
// segment but the last runs F^ck, F^∅, ... first; then the last, and the others backwards, run every F^all and
// every B.
//
// Errors: those of chain.Validate, ErrOptions.
func Periodic(c *chain.Chain, segments int) (schedule.Sequence, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	most := max(1, c.Len()-1)
	if segments < 1 || segments > most {
		return nil, fmt.Errorf("%w: %d segments: periodic takes 1 to %d for this chain, one or more layers each", ErrOptions, segments, most)
	}
	length := (c.Len() - 1) / segments
	var seq schedule.Sequence
	for i := range segments - 1 {
		seq = run(seq, i*length+1, (i+1)*length)
	}
	seq = segment(seq, (segments-1)*length+1, c.Len())
	for i := segments - 2; i >= 0; i-- {
		seq = segment(seq, i*length+1, (i+1)*length)
	}
	return seq, nil
}

// segment appends F^all_s..F^all_t, B_t..B_s.
func segment(seq schedule.Sequence, s, t int) schedule.Sequence {
	for l := s; l <= t; l++ {
		seq = append(seq, all(l))
	}
	for l := t; l >= s; l-- {
		seq = append(seq, backward(l))
	}
	return seq
}

func solvePeriodic(_ context.Context, p strategy.Problem) (schedule.Sequence, error) {
	if p.Segments == 0 {
		return bestPeriodic(p)
	}
	seq, err := Periodic(p.Chain, p.Segments)
	if err != nil {
		return nil, err
	}
	return checked("periodic", p, seq)
}

// bestPeriodic simulates every number of segments: the fastest that fits, of equals the one with the lowest peak, then
// the fewest segments.
func bestPeriodic(p strategy.Problem) (schedule.Sequence, error) {
	sim, err := schedule.NewSimulator(p.Chain)
	if err != nil {
		return nil, err
	}
	var tried trials
	for n := 1; n <= max(1, p.Chain.Len()-1); n++ {
		seq, err := Periodic(p.Chain, n)
		if err != nil {
			return nil, err
		}
		r, err := sim.Run(seq, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			return nil, err
		}
		tried.add(candidate{seq, r.Makespan, r.Peak}, p.Memory)
	}
	return tried.best("periodic", p)
}
