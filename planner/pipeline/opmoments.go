package pipeline

import (
	"math/big"

	"plimsoll/planner/schedule"
)

// opTimes finds when the ops of all stages run, with batches that come the given seconds before the first forward. It is nil for stages
// without ops, and for plans that do not repeat a period of one minibatch. Errors: those of transfers.
func (o *orderer) opTimes(ahead float64) ([]*opTimes, error) {
	all := make([]*opTimes, len(o.plan.Stages))
	if o.period == nil || o.repeats > 1 {
		return all, nil
	}
	swaps, err := o.plannedSwaps()
	if err != nil {
		return nil, err
	}
	for s, st := range o.plan.Stages {
		if len(st.Ops) == 0 {
			continue
		}
		all[s] = o.opTimesOf(s, swaps[s])
		all[s].ahead = o.at[place{F, s, 0}].start
		if s == 0 {
			all[s].ahead = sub(all[s].ahead, o.rounded(ahead))
		}
	}
	return all, nil
}

// opTimesOf finds when the ops of a stage run.
func (o *orderer) opTimesOf(s int, swaps []Swap) *opTimes {
	st := &o.plan.Stages[s]
	x := &opTimes{from: make([]ticks, len(st.Ops)), to: make([]ticks, len(st.Ops))}
	entered := o.at[place{F, s, 0}].start
	now, read, reading := entered, entered, true
	for i, op := range st.Ops {
		if reading = reading && op.Kind != schedule.Prefetch && op.Kind != schedule.Backward; op.Kind.Transfer() {
			continue
		}
		x.from[i], x.to[i] = now, add(now, o.rounded(op.Seconds(o.chain)))
		if now = x.to[i]; reading && op.Layer == st.First {
			read = now
		}
		if i == st.loss() {
			now = o.at[place{B, s, 0}].start
		}
	}
	for _, w := range swaps {
		for op, start := range map[int]float64{w.Offload: w.Out, w.Prefetch: w.Back} {
			x.from[op] = add(entered, o.rounded(start))
			x.to[op] = add(x.from[op], o.rounded(w.Seconds))
		}
		if w.Activation != st.First-1 {
			continue
		}
		if x.held = read; less(x.held, x.to[w.Offload]) {
			x.held = x.to[w.Offload]
		}
	}
	return x
}

// rounded returns the whole ticks of a time, which need not be one of the chain or of the plan.
func (o *orderer) rounded(seconds float64) ticks {
	t := exact(seconds)
	return new(big.Int).Div(new(big.Int).Mul(t.Num(), o.unit), t.Denom())
}
