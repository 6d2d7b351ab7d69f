package executor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Drift returns how many times their costs in a chain the ops took beside which nothing was copied, the median of the steps kept, and how
// many such ops a step had, on average; 1 and 0 where there were none. These ops are the reference for what a machine does since it was measured: its
// frequency, its neighbours. Contention, waits and gaps are not in them.
func (r *Recent) Drift(c *chain.Chain, seq schedule.Sequence) (factor, ops float64) {
	var factors []float64
	for i := range r.steps {
		at := r.steps[i].Intervals
		if len(at) != len(seq) {
			continue
		}
		var took, cost float64
		for p, op := range seq {
			if op.Kind.Transfer() || besideCopies(seq, at, at[p]) {
				continue
			}
			took, cost, ops = took+at[p].End-at[p].Start, cost+op.Seconds(c), ops+1
		}
		if took > 0 && cost > 0 {
			factors = append(factors, took/cost)
		}
	}
	if len(factors) == 0 {
		return 1, 0
	}
	return stats.Median(factors), ops / float64(len(r.steps))
}

// besideCopies reports whether a transfer ran while an op did.
func besideCopies(seq schedule.Sequence, all []Interval, op Interval) bool {
	for q, at := range all {
		if seq[q].Kind.Transfer() && at.Start < op.End && op.Start < at.End {
			return true
		}
	}
	return false
}

// Drifted returns a chain whose ops, and whose updates on the device, take factor times as long; its link and what ops and copies take from
// each other stay.
func Drifted(c *chain.Chain, factor float64) *chain.Chain {
	out := *c
	out.Layers, out.Extra = slices.Clone(c.Layers), maps.Clone(c.Extra)
	for i := range out.Layers {
		l := &out.Layers[i]
		l.ForwardS, l.BackwardS, l.Update.DeviceS, l.Update.NormS = factor*l.ForwardS, factor*l.BackwardS, factor*l.Update.DeviceS, factor*l.Update.NormS
		for _, t := range []**float64{&l.DiscardForwardS, &l.BackwardInputS, &l.BackwardWeightS} {
			if *t != nil {
				x := factor * **t
				*t = &x
			}
		}
	}
	if s := UpdateSeconds(c); s > 0 {
		out.Extra[UpdateField] = json.RawMessage(fmt.Append(nil, factor*s))
	}
	return &out
}

// Times returns the seconds of the steps kept.
func (r *Recent) Times() (all []float64) {
	for i := range r.steps {
		all = append(all, r.steps[i].Step)
	}
	return all
}
