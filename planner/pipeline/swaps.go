package pipeline

import (
	"fmt"

	"plimsoll/planner/chain"
)

// Swap is an activation on its way to the host and back. Times are seconds from the start of the forward of its minibatch.
type Swap struct {
	Activation        int     // its index
	Offload, Prefetch int     // positions of the two ops in the stage's ops
	Seconds           float64 // of either transfer
	Out, Back         float64 // when they start
}

// Swaps returns when the transfers of each stage of a plan run, in the order of the offloads; none for a stage without. Errors:
// those of Check that are about them.
func Swaps(c *chain.Chain, p *Platform, plan *Plan) ([][]Swap, error) {
	if !plan.Offloads() {
		return make([][]Swap, len(plan.Stages)), nil
	}
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	return l.plannedSwaps()
}

// plannedSwaps is Swaps.
func (l *layout) plannedSwaps() ([][]Swap, error) {
	all := make([][]Swap, len(l.plan.Stages))
	if err := l.transfers(); err != nil {
		return nil, err
	}
	for s, k := range l.ops {
		if k == nil || k.each.Moves() == 0 {
			continue
		}
		swaps, why := k.each.swaps(l.platform, l.plan.rhythm(s), k.each.Moves())
		if why != nil {
			return nil, fmt.Errorf("%w: stage %d: %s", ErrOps, s, why.reason)
		}
		for i, t := range swaps {
			v := &k.each.moves[i]
			all[s] = append(all[s], Swap{Activation: v.index, Offload: v.out, Prefetch: v.back, Seconds: v.seconds(l.platform), Out: t.out, Back: t.back})
		}
	}
	return all, nil
}
