// Package strategy makes algorithms that find sequences strategies for one device. It knows no algorithm; planner lists them all.
package strategy

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Problem is everything a sequencer may look at.
type Problem struct {
	Chain  *chain.Chain
	Memory int64         // M, bytes; includes the input a_0
	Link   schedule.Link // bandwidth 0: no transfers allowed
	Options
	// Chosen is told by a strategy that chooses among others whose plan it returns; may be nil.
	Chosen func(name string)
	// Proved is told, in seconds, by a strategy that has proved that no sequence of the problem takes less; may be nil.
	Proved func(bound float64)
}

// ProblemOf returns the problem of a request for one device.
func ProblemOf(r pipeline.Request) Problem {
	l := r.Platform.Limits(0)
	p := Problem{Chain: r.Chain, Memory: l.Memory, Link: l.Link, Options: r.Sequences}
	p.HostMemory = l.Host
	return p
}

// Request returns the request of the problem.
func (p Problem) Request() pipeline.Request {
	return pipeline.Request{Chain: p.Chain, Platform: pipeline.OneDevice(p.Limits()), Sequences: p.Options}
}

// Limits returns the limits in which a sequence of the problem is simulated.
func (p Problem) Limits() schedule.Limits {
	return schedule.Limits{Memory: p.Memory, Link: p.Link, Host: p.HostMemory}
}

// Options are the parameters of sequencers.
type Options = pipeline.SequenceOptions

// Sequencer is one algorithm that finds sequences. The same problem gives the same sequence, byte for byte.
type Sequencer struct {
	Name    string // as the literature names it: "rotor"
	Summary string // one line
	Paper   string // "Shilova's thesis", ...
	Section string // "Theorem 6, Algorithms 3 and 4"
	Sizes   bool   // its sequences depend on sizes alone: neither times nor the link change them
	Joins   bool   // it plans branches that meet in a loss, too
	// Solve returns a sequence whose simulated peak is at most p.Memory, or a *pipeline.InfeasibleError. It need not know p.HostMemory.
	Solve func(ctx context.Context, p Problem) (schedule.Sequence, error)
}

// Strategy returns the sequencer as a strategy. Its plans were simulated, so that no plan leaves the planner unchecked. Errors of its
// Solve: ErrDevices and those of Within.
func (s Sequencer) Strategy() pipeline.Strategy {
	return pipeline.Strategy{Name: s.Name, Type: pipeline.Sequencing, Summary: s.Summary, Paper: s.Paper, Section: s.Section, Solve: s.plan}
}

// Strategies returns sequencers as strategies.
func Strategies(all []Sequencer) []pipeline.Strategy {
	out := make([]pipeline.Strategy, len(all))
	for i, s := range all {
		out[i] = s.Strategy()
	}
	return out
}

func (s Sequencer) plan(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	if n := r.Platform.Devices; n != 1 {
		return nil, fmt.Errorf("%w: %s was asked to plan for %d", ErrDevices, s.Name, n)
	}
	winner, proved := "", 0.0
	p := ProblemOf(r)
	p.Chosen = func(name string) { winner = name }
	p.Proved = func(bound float64) { proved = bound }
	seq, err := s.Within(ctx, p)
	if err != nil {
		return nil, err
	}
	plan, err := pipeline.PlanSequence(r.Chain, s.Name, seq, p.Limits())
	if err != nil {
		return nil, fmt.Errorf("BUG: %s returned a sequence that cannot run: %w", s.Name, err)
	}
	plan.Winner, plan.Predicted.LowerBound = winner, proved
	return plan, nil
}

// ErrDevices means that a strategy for one device was asked to plan for several.
var ErrDevices = errors.New("the strategy plans for one device")

// ErrBranches means that a strategy of chains was asked to plan branches that meet.
var ErrBranches = errors.New("the strategy plans chains alone")

// accepts refuses to plan branches as if they were one chain. Error: ErrBranches.
func (s Sequencer) accepts(c *chain.Chain) error {
	if s.Joins || len(c.Branches) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s cannot plan %s of %d branches: use auto, multi-delta or multi-empty", ErrBranches, s.Name, c.Name, len(c.Branches))
}

// Kind is a way to need less memory: what a plan may do.
type Kind struct {
	Name string // "recompute and offload"
	// Strategies stand for it, the one that needs least memory first: where that needs too much host memory, another may do.
	Strategies []pipeline.Strategy
	Fastest    pipeline.Strategy // whose plan says what a limit costs in time
	// Smallest returns the smallest limit at which the kind has a sequence, in bytes with a_0: it depends on sizes alone. nil: its strategy's
	// Least says so.
	Smallest func(*chain.Chain) (int64, error)
}
