package pofo

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/planner/improve"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// contest simulates candidates and keeps the best few.
type contest struct {
	strategy.Problem
	sim   *schedule.Simulator
	keeps int
	best  []candidate // the best first
}

// candidate is a sequence that fits.
type candidate struct {
	seq      schedule.Sequence
	makespan float64 // seconds
	peak     int64
}

func newContest(p strategy.Problem, keeps int) (*contest, error) {
	sim, err := schedule.NewSimulator(p.Chain)
	if err != nil {
		return nil, err
	}
	return &contest{Problem: p, sim: sim, keeps: keeps}, nil
}

func (c *contest) limits() schedule.Limits { return schedule.Limits{Memory: c.Memory, Link: c.Link} }

// enter simulates a sequence; one that does not fit, or that is known, is passed over. Of equally fast ones the one with
// the lower peak is better, then the one that came first.
func (c *contest) enter(seq schedule.Sequence) {
	r, err := c.sim.Run(seq, c.limits())
	if err != nil {
		return // a wait that never ends: prefetches took the memory that an op before them needs
	}
	mine := candidate{makespan: r.Makespan, peak: r.Peak}
	i, _ := slices.BinarySearchFunc(c.best, mine, func(have, mine candidate) int {
		return cmp.Or(cmp.Compare(have.makespan, mine.makespan), cmp.Compare(have.peak, mine.peak), -1)
	})
	if i >= c.keeps || slices.ContainsFunc(c.best, func(have candidate) bool { return slices.Equal(have.seq, seq) }) {
		return
	}
	mine.seq = slices.Clone(seq)
	c.best = slices.Insert(c.best, i, mine)
	c.best = c.best[:min(len(c.best), c.keeps)]
}

// place enters the sequences that package improve makes of compute ops and gaps.
func (c *contest) place(compute schedule.Sequence, gaps []improve.Gap, turn int) {
	for _, seq := range improve.Place(c.Chain, compute, gaps, turn, c.limits()) {
		c.enter(seq)
	}
}

// winner returns the best sequence.
func (c *contest) winner(name string) (schedule.Sequence, error) {
	if len(c.best) == 0 {
		return nil, fmt.Errorf("BUG: %s found no sequence for %d bytes", name, c.Memory)
	}
	return c.best[0].seq, nil
}

// infeasible says that a limit is too small for a strategy whose smallest has the sequence seq.
func infeasible(name string, p strategy.Problem, smallest int64, seq schedule.Sequence) error {
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: smallest, Link: p.Link})
	if err != nil {
		return fmt.Errorf("BUG: %s at its smallest limit: %w", name, err)
	}
	e := &pipeline.InfeasibleError{Strategy: name, Memory: p.Memory, Smallest: smallest}
	if r.PeakOp >= 0 {
		e.Op = seq[r.PeakOp]
		e.LayerName = p.Chain.Layer(e.Op.Layer).Name
	}
	return e
}
