package pipeline

import (
	"fmt"
	"plimsoll/planner/chain"
	"time"
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
	HostState    bool          // as in Plan, of schedules with a flush
	WholeUpdates bool          // no strategy may choose to divide updates among replicas: see Zero
	Accounting   Accounting    // default: inputs
	UpdatesLast  bool          // as in Plan, of strategies of type cyclic
	Trials       int           // plans that residency's search times (default: as many as fit the length of the chain)
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
	// Contention is read by auto: the seconds that computation loses for each second in which the link is busy, beyond simulated
	// slowdowns. It is for chains without measured slowdowns (chain.Beside) (default: 0).
	Contention float64
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
