// Package strategy says what a planning strategy is: one function from a problem to a sequence, and one
// registry entry that names it and its source. It knows no algorithm; planner lists them all.
package strategy

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Problem is everything a single-device strategy may look at.
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

// Limits returns what a sequence of the problem is simulated with.
func (p *Problem) Limits() schedule.Limits {
	return schedule.Limits{Memory: p.Memory, Link: p.Link, Host: p.HostMemory}
}

// Options are the parameters of strategies; zero values mean the documented default.
type Options struct {
	Slots     int // rotor and offload-dynprog: number of memory slots S, N (default 500)
	PofoSlots int // pofo: N, which bounds the alternatives that are kept (default 50)
	States    int // branch-and-bound: states of memory that the search keeps, about 100 bytes each (default 2^20; in auto 2^16)
	Segments  int // periodic: number of segments (default: the best by simulation)
	// HighMemory is capper's M', bytes: the limit of the rematerialization that is then offloaded (default: store-all's peak).
	HighMemory int64
	// HostMemory bounds the copies of what leaves the device, bytes; 0: no limit. See Strategy.Within.
	HostMemory int64
	// Tolerance is auto's: by which part of the least makespan a plan may be slower that needs no transfers (default: 0, the
	// fastest plan).
	Tolerance float64
	// Contention is auto's: the seconds that computation loses for each second in which the link is busy, beyond what simulations
	// know, for chains that do not say it themselves (chain.Beside) (default: 0).
	Contention float64
}

// Strategy is one algorithm. The same problem gives the same sequence, byte for byte.
type Strategy struct {
	Name    string // as the literature names it: "rotor"
	Summary string // one line
	Paper   string // "Shilova's thesis", ...
	Section string // "Theorem 6, Algorithms 3 and 4"
	Sizes   bool   // its sequences depend on sizes alone: neither times nor the link change them
	Joins   bool   // it plans branches that meet in a loss, too
	// Solve returns a sequence whose simulated peak is at most p.Memory, or an *InfeasibleError. It need not know p.HostMemory.
	Solve func(ctx context.Context, p Problem) (schedule.Sequence, error)
}

// ErrBranches means that a strategy of chains was asked to plan branches that meet.
var ErrBranches = errors.New("the strategy plans chains alone")

// accepts refuses to plan branches as if they were one chain. Error: ErrBranches.
func (s Strategy) accepts(c *chain.Chain) error {
	if s.Joins || len(c.Branches) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s cannot plan %s of %d branches: use auto, multi-delta or multi-empty", ErrBranches, s.Name, c.Name, len(c.Branches))
}

// Kind is a way to need less memory: what a plan may do.
type Kind struct {
	Name string // "recompute and offload"
	// Strategies stand for it, the one that needs least memory first: where that needs too much host memory, another may do.
	Strategies []Strategy
	Fastest    Strategy // whose plan says what a limit costs in time
	// Smallest returns the smallest limit at which the kind has a sequence, in bytes with a_0: it depends on sizes alone.
	Smallest func(*chain.Chain) (int64, error)
}

// InfeasibleError says that no sequence of this strategy fits.
type InfeasibleError struct {
	Strategy string
	Memory   int64 // the limit asked for
	Smallest int64 // the smallest limit at which this strategy has a sequence
	Found    bool  // Smallest is the smallest limit that was found; a smaller one may work
	Tried    int   // sequences that a search has tried for one that fits; 0: there was none
	// Op is the op that binds: in the sequence for Smallest, the one with the highest memory.
	Op        schedule.Op
	LayerName string
}

func (e *InfeasibleError) Error() string {
	searched := ""
	if e.Tried > 0 {
		searched = fmt.Sprintf("; %d sequences were tried for less", e.Tried)
	}
	return fmt.Sprintf("%s: a limit of %s is too small: the smallest %s is %s, needed by %v (%s)%s",
		e.Strategy, units.Precise(e.Memory), e.That(), units.Precise(e.Smallest), e.Op, e.LayerName, searched)
}

// That says what is known of Smallest: "that works" or "found".
func (e *InfeasibleError) That() string {
	if e.Found {
		return "found"
	}
	return "that works"
}
