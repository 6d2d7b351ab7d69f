package measure

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"plimsoll/executor"
	"plimsoll/planner/chain"
)

// link measures the link, and what ops and copies take from each other, which it writes into the chain.
func (s *session) link(ctx context.Context, exercises []*Exercise, c *chain.Chain) (link executor.LinkProfile, err error) {
	x, probe, err := s.beside(exercises)
	if err != nil {
		return link, err
	}
	err = s.with(x, probe, probe.limit(x.Extent, s.limit), func(t *OpTimer) error {
		m, err := t.newProber(probe, probePatience)
		if err != nil {
			return err
		}
		m.lasting = s.opt.lasting(probeFor)
		if link, err = m.measure(ctx); err != nil {
			return err
		}
		if t.step.Extent+2*probe.device > t.limit { // copies would write over what the step computes with
			for range linkSteps + hostUpdateSteps {
				s.step()
			}
			return nil
		}
		b, err := m.besides(ctx, x, &s.opt, s.step)
		if err != nil {
			return err
		}
		link.Slowdown = b.slowdown()
		b.contend(c, &link)
		return m.besideUpdates(ctx, s, c)
	})
	return link, err
}

// beside returns the exercise beside which the link is measured, and the windows for copies: as long as what the exercise computes with,
// up to mostWindow. Those of the device lie behind its blocks, the longest that leaves them probeBytes, or, with what room there is, the
// smallest. Where that has all memory, they lie in it.
func (s *session) beside(exercises []*Exercise) (x *Exercise, probe windows, err error) {
	byExtent := func(a, b *Exercise) int { return cmp.Compare(a.Extent, b.Extent) }
	all, err := Exercises(s.Workload, s.lib, s.limit-2*probeBytes, false)
	switch {
	case err == nil:
		x = slices.MaxFunc(all, byExtent)
	case errors.As(err, new(*WindowError)):
		x = slices.MinFunc(exercises, byExtent)
	default:
		return nil, probe, err
	}
	host := int64(math.MaxInt64)
	if s.hostLimit > 0 {
		host = s.hostLimit - x.placeHost(windows{}).bytes
	}
	return x, windowsBeside(x.Extent, s.limit, host), nil
}
