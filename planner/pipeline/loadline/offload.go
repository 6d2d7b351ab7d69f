package loadline

// Stages that offload: the same dynamic program over first layer and device. A stage that does not fit as it is may also run a sequence of
// rotor's, and its kept activations go to the host between F and B. The first activations go first: B needs them last, and F makes them
// first. Transfers take no time of F and B, so that a stage that stores everything and offloads has the shortest delay there is.
//
// The memory of such a stage depends on when F and B of the minibatches in flight meet, and a longer period may make it worse. So the
// period is bisected for a better one than the period without transfers. If none is found, the latter stays the answer.

import (
	"slices"
	"sort"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/schedule"
)

const (
	// resident is for how many minibatches the sequences are chosen that are tried with transfers: those in flight are with the
	// host for the most part.
	resident = 2
	// closeness is the relative distance of periods at which the bisection ends.
	closeness = 1e-4
)

// offload returns the stage with ops and transfers that has the shortest delay, if there is one with a delay below another one.
func (c *cutter) offload(d, first, last int, period, below float64) (delay float64, way choice, ok bool) {
	ways := c.rich.Ways(first, last, resident)
	for i := len(ways) - 1; i >= 0; i-- {
		delay, ok := periodic.Around(c.after[d][last], c.costs.U(first, last)+ways[i].Again, period)
		if !ok || delay >= below {
			break
		}
		g := periodic.Live(delay, period)
		cost := c.measured(first, last, i)
		if n := cost.most(c.Platform, pipeline.Rhythm{Period: period, Later: delay - cost.Backward}, c.Platform.Memory[d]-c.static(first, last, g)); n > 0 {
			return delay, choice{last: last, live: g, number: i, moves: n}, true
		}
	}
	return 0, choice{}, false
}

// whole is the costs of a sequence that offloads everything that it keeps.
type whole struct {
	*pipeline.StageCost
	floor int64 // bytes that it needs whatever the rhythm
}

// measured returns the costs of a sequence that offloads everything that it keeps; without moves when that fits on no device.
func (c *cutter) measured(first, last, number int) *whole {
	key := [3]int{first, last, number}
	if have, ok := c.known[key]; ok {
		return have
	}
	st := pipeline.Stage{First: first, Last: last, Ops: c.rich.Ops(first, last, resident, number)}
	st.Ops = offloading(st, st.Len())
	cost := &whole{StageCost: mustMeasure(c.Chain, st)}
	cost.floor = cost.alone(c.Platform)
	if cost.floor+c.static(first, last, 1) > slices.Max(c.Platform.Memory) {
		cost.StageCost = &pipeline.StageCost{}
	}
	c.known[key] = cost
	return cost
}

// alone returns the most bytes of one minibatch when nothing else is on the link and B begins long after F: no rhythm needs
// less.
func (c *whole) alone(p *pipeline.Platform) int64 {
	span := max(c.Forward+c.Backward, instant) + c.MoveSeconds(p)
	held, ok := c.Held(p, pipeline.Rhythm{Period: 8 * span, Later: 4 * span}, c.Moves())
	if !ok {
		panic("BUG: transfers that are alone find no time")
	}
	return held
}

// mustMeasure measures ops that this package has made.
func mustMeasure(c *chain.Chain, st pipeline.Stage) *pipeline.StageCost {
	cost, err := pipeline.MeasureStage(c, st, st.Ops)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return cost
}

// most returns the largest number of first moves that the link has room for, if the live minibatches then hold no more than so
// many bytes; else 0.
func (c *whole) most(p *pipeline.Platform, r pipeline.Rhythm, bytes int64) int {
	if c.floor > bytes {
		return 0
	}
	n := sort.Search(c.Moves(), func(n int) bool { return !c.HasRoom(p, r, n+1) })
	if n == 0 {
		return 0
	}
	if held, ok := c.Held(p, r, n); !ok || held > bytes {
		return 0
	}
	return n
}

// offloading returns the ops of a stage, without transfers, with offloads of the first n activations that it keeps between F and
// B. Their prefetches come in the order in which B reads them.
func offloading(st pipeline.Stage, n int) schedule.Sequence {
	turn := slices.IndexFunc(st.Ops, func(op schedule.Op) bool { return op.Layer == st.Last }) + 1
	var seq schedule.Sequence
	gone := map[int]bool{}
	for _, op := range st.Ops[:turn] {
		if op.Kind != schedule.ForwardDiscard && len(gone) < n { // its input stays
			gone[op.Layer-1] = true
			seq = append(seq, schedule.Op{Kind: schedule.Offload, Layer: op.Layer})
		}
		seq = append(seq, op)
	}
	for _, op := range st.Ops[turn:] {
		for _, i := range []int{op.Layer, op.Layer - 1} {
			if gone[i] && (i < op.Layer || op.Kind == schedule.Backward) {
				gone[i] = false
				seq = append(seq, schedule.Op{Kind: schedule.Prefetch, Layer: i + 1})
			}
		}
	}
	return append(seq, st.Ops[turn:]...)
}

// staying returns ops without their transfers.
func staying(ops schedule.Sequence) schedule.Sequence {
	return slices.DeleteFunc(slices.Clone(ops), func(op schedule.Op) bool { return op.Kind.Transfer() })
}
