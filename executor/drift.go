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

// TimedOp is an op that ran, and its cost in a chain; 0 of a copy, or of an update on the host, which slow the ops beside them.
type TimedOp struct {
	Interval
	Cost float64
}

// leastReference is the share of a step's computation that the ops must make that Drift goes by: a few short ones would tell of themselves alone.
const leastReference = 0.1

// Drift returns how many times their costs in a chain the ops took beside which nothing was copied, or updated on the host. It is the median of
// the steps. ops is how many such ops a step had, on average. Where they are too few in all steps, it returns 1 and 0. These ops are the
// reference for what a machine does since it was measured: its frequency, its neighbours. Contention, waits and gaps are not in them.
func Drift(steps [][]TimedOp) (factor, ops float64) {
	var factors []float64
	for _, all := range steps {
		var took, cost, whole, alone float64
		for _, op := range all {
			whole += op.Cost
			if op.Cost > 0 && !besideCopies(all, op.Interval) {
				took, cost, alone = took+op.End-op.Start, cost+op.Cost, alone+1
			}
		}
		if took > 0 && cost > leastReference*whole {
			factors, ops = append(factors, took/cost), ops+alone
		}
	}
	if len(factors) == 0 {
		return 1, 0
	}
	return stats.Median(factors), ops / float64(len(steps))
}

// besideCopies reports whether a copy, or an update on the host, ran while an op did.
func besideCopies(all []TimedOp, op Interval) bool {
	return slices.ContainsFunc(all, func(x TimedOp) bool { return x.Cost == 0 && x.Start < op.End && op.Start < x.End })
}

// Ops returns the ops of the steps kept that were timed along a sequence, with their costs in a chain.
func (r *Recent) Ops(c *chain.Chain, seq schedule.Sequence) [][]TimedOp {
	steps := make([][]TimedOp, len(r.steps))
	for i := range r.steps {
		for p, at := range r.steps[i].Intervals {
			op := TimedOp{Interval: at}
			if !seq[p].Kind.Transfer() {
				op.Cost = seq[p].Seconds(c)
			}
			steps[i] = append(steps[i], op)
		}
	}
	return steps
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
