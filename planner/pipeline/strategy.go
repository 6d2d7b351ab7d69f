package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"plimsoll/planner/chain"
)

// Request is everything a strategy may look at.
type Request struct {
	Chain    *chain.Chain
	Platform *Platform
	Options
	Sequences SequenceOptions // of strategies for one device
}

// Validate checks the chain and the platform, which every strategy does before it plans. Errors: chain.ErrFormat, ErrBranches,
// ErrPlatform.
func (r Request) Validate() error {
	if err := ValidateChain(r.Chain); err != nil {
		return err
	}
	return r.Platform.Validate()
}

// ValidateChain checks a chain and refuses branches that meet: stages are ranges of layers, each of which reads the one
// before it. Errors: chain.ErrFormat, ErrBranches.
func ValidateChain(c *chain.Chain) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if len(c.Branches) > 0 {
		return fmt.Errorf("%w: field \"branches\" of %q is %v; plan it for one device", ErrBranches, c.Name, c.Branches)
	}
	return nil
}

// Options are the parameters of strategies; zero values mean the documented default.
type Options struct {
	Stages       []Stage       // the allocation, for strategies that only schedule (default: the strategy's own partition)
	Microbatches int           // m of a flush schedule (default: the strategy's)
	Chunks       int           // v, stages of each device of an interleaved schedule (default: 2)
	PerPeriod    int           // k of a k-periodic schedule (default: the best)
	Active       int           // NOAM, minibatches that enter before the first has left (default: the strategy's)
	Versions     Versions      // default: double_buffered for periodic schedules, flush for flush schedules
	WeightCopies []float64     // as in Plan
	Zero         Zero          // as in Plan, of schedules with a flush
	Accounting   Accounting    // default: inputs
	UpdatesLast  bool          // as in Plan, of strategies of type cyclic
	TimeLimit    time.Duration // of a search; 0: none but the context's
	Gap          float64       // relative gap at which a search may stop; 0: as far as the solver's tolerance
}

// SequenceOptions are the parameters of strategies for one device; zero values mean the documented default.
type SequenceOptions struct {
	Slots     int // rotor and offload-dynprog: number of memory slots S, N (default 500)
	PofoSlots int // pofo: N, which bounds the alternatives that are kept (default 50)
	States    int // branch-and-bound: states of memory that the search keeps, about 100 bytes each (default 2^20; in auto 2^16)
	Segments  int // periodic: number of segments (default: the best by simulation)
	// HighMemory is capper's M', bytes: the limit of the rematerialization that is then offloaded (default: store-all's peak).
	HighMemory int64
	// HostMemory bounds the copies of what leaves the device, bytes; 0: no limit. The platform of a Request overrides it.
	HostMemory int64
	// Tolerance is auto's: by which part of the least makespan a plan may be slower that needs no transfers (default: 0, the
	// fastest plan).
	Tolerance float64
	// Contention is auto's: the seconds that computation loses for each second in which the link is busy, beyond what simulations
	// know, for chains that do not say it themselves (chain.Beside) (default: 0).
	Contention float64
}

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
// carries it; any other refusal is a bug of the strategy.
func Finish(strategy string, r Request, p *Plan) (*Plan, error) {
	p.Chain, p.Strategy, p.Platform, p.Zero = r.Chain.Name, strategy, r.Platform, cmp.Or(r.Zero, p.Zero)
	synchronized, report, refused, err := synchronizeAndCheck(r.Chain, r.Platform, p)
	if p.Zero != ZeroNothing && errors.Is(err, ErrPlan) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("BUG: %s made a plan that cannot run: %w", strategy, err)
	}
	*p = *synchronized
	if report != nil {
		p.PerDevicePeak = report.PerDevicePeak
		p.Predicted.Makespan = report.Makespan
	}
	if refused == nil {
		return p, nil
	}
	if e, ok := refused.(*InvalidError); ok && e.OnlyMemory() {
		return nil, &InfeasibleError{Strategy: strategy, Reason: e.Violations[0].Reason, Best: p}
	}
	return nil, fmt.Errorf("BUG: %s made a plan that cannot run: %w", strategy, refused)
}
