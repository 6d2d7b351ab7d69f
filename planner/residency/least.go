package residency

import (
	"context"
	"fmt"
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
)

// Sparing says what leaves the device in a plan with little memory.
type Sparing uint8

// The levels, from the least memory of the device to the least of the host.
const (
	AllAway       Sparing = iota // weights, gradients, state and activations
	NoActivations                // all of these but activations
)

// Least returns the sequence with the least memory of those in which weights, gradients, state and, if asked, activations leave the device
// whenever they can. It tries every order of the search, with all updates that can be on the host there. The peak holds for any durations.
// Only sizes and what the host can update count, no times and limits: a model that was not measured has the same sequence. Errors: those of
// cycle.NewSimulator, the context's.
func Least(ctx context.Context, r Request, s Sparing) (seq cycle.Sequence, peak int64, err error) {
	r.Chain, r.Link = sizesAlone(r.Chain), sameLink(r.Link)
	r.Limits = cycle.Limits{Memory: cycle.NoLimit, Host: cycle.NoLimit, UpdatesLast: r.Limits.UpdatesLast}
	p, err := newProblem(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	best, peak := (*layout)(nil), int64(math.MaxInt64)
	for _, g := range p.groups() {
		for _, t := range p.patterns(g) {
			if err := ctx.Err(); err != nil {
				return nil, 0, err
			}
			o := p.arrange(t)
			if o == nil {
				continue
			}
			l := p.lay(p.sparing(o, s))
			if _, bytes := l.peak(); bytes < peak || bytes == peak && o.total < best.choice.order.total {
				best, peak = l, bytes
			}
		}
	}
	if best == nil {
		return nil, 0, fmt.Errorf("BUG: no order of %d layers follows the rules", p.n)
	}
	best.p.limits.Memory = peak
	return best.emit(), peak, nil
}

// sparing returns the choice in which items that leave are on the device for their uses alone.
func (p *problem) sparing(o *order, s Sparing) *choice {
	x := p.blank(o)
	x.moves = [itemKinds]bool{weightsItem: true, stateItem: true, gradientItem: true, activationItem: s == AllAway}
	x.policy.lead = 0
	p.updateOnHost(x, every)
	return x
}

// sizesAlone returns a chain in which every op takes a second.
func sizesAlone(c *chain.Chain) *chain.Chain {
	out, second := *c, 1.0
	out.Layers = make([]chain.Layer, len(c.Layers))
	for i, l := range c.Layers {
		l.ForwardS, l.BackwardS, l.Update.DeviceS = second, second, second
		l.DiscardForwardS, l.BackwardInputS, l.BackwardWeightS, l.Update.NormS = nil, nil, nil, 0
		if l.Update.HostS != nil {
			l.Update.HostS = &second
		}
		out.Layers[i] = l
	}
	return &out
}

// sameLink returns a link of a fixed bandwidth in the directions that a link has.
func sameLink(l cycle.Link) cycle.Link {
	const bytesPerS = 1e12
	for _, x := range []*float64{&l.ToDevice, &l.ToHost} {
		if *x > 0 {
			*x = bytesPerS
		}
	}
	l.Duplex = true
	return l
}
