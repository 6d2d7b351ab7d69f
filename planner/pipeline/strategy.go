package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Type says what a strategy decides.
type Type string

// The types of strategies.
const (
	Sequencing  Type = "sequence"  // the sequence of one device
	Partitioner Type = "partition" // stages and schedule
	Periodic    Type = "periodic"  // a periodic schedule of given stages
	Flushing    Type = "flush"     // a flush schedule of given stages
	Cyclic      Type = "cyclic"    // where weights, gradients and state of one device are, with its sequence
)

// Strategy is one algorithm. The same request gives the same plan, byte for byte.
type Strategy struct {
	Name    string // as the literature names it: "madpipe"
	Type    Type
	Summary string // one line
	Paper   string // "Shilova's thesis", ...
	Section string // "section 7.1, Algorithm 8"
	// Microbatches is how many a schedule has that allows no other number; 0: the request says.
	Microbatches int
	// Solve returns a plan that Check accepts (see Finish). Errors: *InfeasibleError;
	// *UnfinishedError, which carries the best plan so far; those of Request.Validate; the context's.
	Solve func(ctx context.Context, r Request) (*Plan, error)
	// Least return the plans with the least memory that are found without a search, whatever memory there is. The first one takes the least
	// of the device, the last one of the host. They depend on the sizes of a chain, not on times.
	Least []func(ctx context.Context, r Request) (*Plan, error)
	// Parts are strategies whose plans Solve chooses among, if it does. Who counts memory more closely than Check asks each of them: the
	// fastest of all plans may not fit where another one does.
	Parts []Strategy
}

// Divides reports whether a step of the strategy's plans is one or more microbatches.
func (s Strategy) Divides() bool { return s.Type == Flushing || s.Type == Cyclic }

// Finish names the plan's chain, strategy and platform, gives it the messages that its replicas need (Synchronize), checks it and
// fills in what the check found: peaks, makespan. A plan that is refused for memory alone comes back as an *InfeasibleError that
// carries it. If no link joins stages that share weights, the error is ErrPlatform. If the request asks for divided state, or state on the host,
// that the plan cannot have, it is ErrPlan. Any other refusal is a bug of the strategy.
func Finish(strategy string, r Request, p *Plan) (*Plan, error) {
	p.Chain, p.Strategy, p.Platform, p.Zero, p.HostState = r.Chain.Name, strategy, r.Platform, cmp.Or(r.Zero, p.Zero), r.HostState || p.HostState
	synchronize := synchronizeAndCheck
	if p.Zero >= ZeroGradients {
		synchronize = synchronizeDivided
	}
	synchronized, report, refused, err := synchronize(r.Chain, r.Platform, p)
	asked := cmp.Or(err, refused)
	if (p.Zero != ZeroNothing || p.HostState) && errors.Is(asked, ErrPlan) || errors.Is(err, ErrPlatform) {
		return nil, asked
	}
	if err != nil {
		return nil, fmt.Errorf("BUG: %s made a plan that cannot run: %w", strategy, err)
	}
	*p = *synchronized
	if report != nil {
		report.predict(p)
	}
	if refused == nil {
		return p, nil
	}
	if e, ok := refused.(*InvalidError); ok && e.OnlyMemory() {
		return nil, &InfeasibleError{Strategy: strategy, Reason: e.Violations[0].Reason, Best: p}
	}
	return nil, fmt.Errorf("BUG: %s made a plan that cannot run: %w", strategy, refused)
}
