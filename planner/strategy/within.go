package strategy

import (
	"context"
	"math"

	"plimsoll/internal/await"
	"plimsoll/planner/schedule"
)

// How far Within slows a link down: to a share of 2^-slowest, and between the first share that does and the one before it in so
// many steps.
const (
	slowest = 12
	between = 4
)

// Within returns a sequence of the strategy whose copies fit in p.HostMemory. The literature's strategies know no such limit, but they
// transfer less over a slower link. If the copies do not fit, Within asks the strategy again for slower links, and takes the fastest link
// with which they fit. It returns as soon as the context is canceled. Errors: ErrBranches, those of Solve, *schedule.HostMemoryError.
func (s Sequencer) Within(ctx context.Context, p Problem) (schedule.Sequence, error) {
	if err := s.accepts(p.Chain); err != nil {
		return nil, err
	}
	fast, full := 0.0, p.Link.Bandwidth // fast: of log2, how much slower the link was at the latest try that did not fit
	best, least, err := s.ask(ctx, p)
	if best != nil || err != nil {
		return best, err
	}
	for slower := 1.0; slower <= slowest && best == nil && !s.Sizes; slower++ {
		if best, least, err = s.slowed(ctx, p, full, slower, least); err != nil {
			return nil, err
		} else if best == nil {
			fast = slower
		}
	}
	if best == nil {
		return nil, &schedule.HostMemoryError{Needed: least, Limit: p.HostMemory}
	}
	for slow, k := fast+1, 0; k < between; k++ {
		middle := (fast + slow) / 2
		seq, _, err := s.slowed(ctx, p, full, middle, least)
		switch {
		case err != nil:
			return nil, err
		case seq != nil:
			best, slow = seq, middle
		default:
			fast = middle
		}
	}
	return best, nil
}

// slowed asks for a link 2^slower times slower. least is the fewest bytes of copies so far.
func (s Sequencer) slowed(ctx context.Context, p Problem, full, slower float64, least int64) (schedule.Sequence, int64, error) {
	p.Link.Bandwidth = full / math.Exp2(slower)
	seq, needed, err := s.ask(ctx, p)
	return seq, min(least, needed), err
}

// ask returns a sequence if its copies fit, and what they take.
func (s Sequencer) ask(ctx context.Context, p Problem) (schedule.Sequence, int64, error) {
	seq, err := await.Do(ctx, func() (schedule.Sequence, error) { return s.Solve(ctx, p) })
	if err != nil || p.HostMemory == 0 {
		return seq, 0, err
	}
	needed, err := schedule.HostBytes(p.Chain, seq)
	if err != nil || needed <= p.HostMemory {
		return seq, needed, err
	}
	return nil, needed, nil
}
