package offload

// The bounds that no offloading sequence beats.
//
// Paper: A. Shilova, thesis, chapter 3: Proposition 3 (section 3.1.1) and Theorem 8 (section 3.2.2), with errata 4 and 6 of the chapter. If
// the limit is above M_peak, nothing has to move; both results presume that a sequence exists. O(n).

import (
	"plimsoll/planner/strategy"
)

// LowerBound returns Proposition 3: the makespan, in seconds, that no sequence without recomputation is below. All
// ops run one after another. M_peak - M bytes cross the link out, and back again after the op that needs them
// away. The proof holds on one link and for duplex.
//
// It does not bound sequences that recompute. Errors: those of chain.Validate, ErrLink, *pipeline.InfeasibleError
// when no sequence fits.
func LowerBound(p strategy.Problem) (seconds float64, err error) {
	k, err := feasibleCosts("offload", p)
	if err != nil {
		return 0, err
	}
	return max(k.busy(), 2*max(0, k.peak()-k.memory)/k.bandwidth), nil
}

// FractionalBound returns Theorem 8: the least makespan, in seconds, when any part of an activation may move and be
// freed at once. It is at least LowerBound. On a duplex link, for which the theorem is not proven, it is LowerBound.
//
// Errors: as LowerBound.
func FractionalBound(p strategy.Problem) (seconds float64, err error) {
	if p.Link.Duplex {
		return LowerBound(p)
	}
	k, err := feasibleCosts("offload", p)
	if err != nil {
		return 0, err
	}
	return k.seconds(newFractional(k).eager(k.peak() - k.memory)), nil
}

func feasibleCosts(name string, p strategy.Problem) (*costs, error) {
	k, err := newCosts(p)
	if err != nil {
		return nil, err
	}
	if least, _ := k.smallest(); k.memory < least {
		return nil, k.infeasible(name, p)
	}
	return k, nil
}

// eager returns the idle time, in bytes, of the schedule that offloads the first bytes of the first activations.
func (f *fractional) eager(bytes float64) float64 {
	s := state{}
	for i := 1; i <= f.n; i++ {
		away := min(max(bytes, 0), f.saved[i-1])
		bytes -= away
		s, _ = f.step(s, i, away)
	}
	return s.idle + f.junction(s)
}

// seconds converts idle bytes to a makespan.
func (k *costs) seconds(idle float64) float64 { return k.busy() + idle/k.bandwidth }
