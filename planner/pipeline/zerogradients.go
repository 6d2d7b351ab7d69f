package pipeline

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"sort"
)

// dividesGradients reports whether sums of gradients are divided among replicas (ZeroGradients).
func (l *layout) dividesGradients() bool { return l.plan.Zero >= ZeroGradients }

// gathered reports whether messages bring what becomes of a sum to all replicas. Where gradients are divided, those of the last round bring
// new weights.
func (l *layout) gathered(x *sum) bool {
	return !l.dividesGradients() || !l.dividesWeights() && x.lastRound(l.repeats)
}

// lastRound reports whether the sum is that of the last round of a step.
func (x *sum) lastRound(repeats int) bool { return x.round[len(x.round)-1] == repeats-1 }

// bucket tells which part of which bucket a sum has, of whatever round.
func (x *sum) bucket() bucketOf {
	return bucketOf{stage: x.stage, first: x.first, last: x.last, part: x.part}
}

// alike refuses a round whose buckets are not those of the first one, where gradients are divided: an owner adds up its parts of all rounds.
func (a *arranger) alike(x *replicatedStage, first, round []int) bool {
	same := slices.EqualFunc(a.sumsOf(x.stage, first), a.sumsOf(x.stage, round), func(y, z *sum) bool { return y.bucket() == z.bucket() })
	if !a.dividesGradients() || same {
		return true
	}
	last := x.round - 1
	a.broken.add(RuleSynchronization, None, None, "stage %d: the buckets of microbatch %d are not those of microbatch %d: give all rounds the same", x.stage, round[last], first[last])
	return false
}

// takeTurns refuses, with ErrPlan, replicas that do not have one microbatch each in every round.
func (l *layout) takeTurns(stages []replicatedStage) error {
	for _, x := range stages {
		if n := len(x.line); l.dividesGradients() && x.round != n {
			return fmt.Errorf("%w: field \"zero\" is %d: devices %v of stage %d do not take turns, so that every %d microbatches are one for each: give \"zero\" 1", ErrPlan, l.plan.Zero, x.line, x.stage, n)
		}
	}
	return nil
}

// Passing is gradients of a round of a stage that pass through a device. They are there from the start of the backward that makes them until all
// parts have left, and the device has added up its own.
type Passing struct {
	Stage, Microbatch int // that of the device
	Interval
}

// passingGradients is Passing in ticks.
type passingGradients struct {
	stage, microbatch int
	stay
}

// passingThrough returns the gradients that pass through a device, in the order of their backwards. Of those that start at one instant the one
// that ends first runs first, and of those that take no time the one of the later stage.
func (l *layout) passingThrough(d int) (all []passingGradients) {
	rounding := new(big.Int).Div(l.span(), tolerance)
	for _, x := range l.divided {
		at := slices.Index(x.line, d)
		if at < 0 || !l.dividesGradients() {
			continue
		}
		for _, round := range rounds(l.repeats, x.round) {
			i := slices.IndexFunc(round, func(r int) bool { return l.at[place{B, x.stage, r}].device == d })
			b := l.at[place{B, x.stage, round[i]}]
			left := b.end()
			for _, y := range l.sumsOf(x.stage, round) {
				gone := l.addedAt(y)
				if y.end() != at {
					gone = y.reduces[at].end()
				}
				if less(left, gone) {
					left = gone
				}
			}
			all = append(all, passingGradients{x.stage, round[i], stay{hold{1, x.stage, b.task}, b.start, before(b.start, left, rounding)}})
		}
	}
	end := func(x passingGradients) ticks { return l.at[place{B, x.stage, x.microbatch}].end() }
	slices.SortStableFunc(all, func(x, y passingGradients) int {
		return cmp.Or(x.from.Cmp(y.from), end(x).Cmp(end(y)), y.stage-x.stage)
	})
	return all
}

// Turns returns how many buffers so many things need that take them in turn, in the order in which they begin. It is told whether a later one
// begins while number i is there. If so, those between them do, too.
func Turns(n int, meets func(i, later int) bool) (buffers int) {
	for i := range n {
		buffers = max(buffers, 1+sort.Search(n-i-1, func(k int) bool { return !meets(i, i+1+k) }))
	}
	return buffers
}

// passingMoments is passingThrough in moments.
func (o *orderer) passingMoments(d int) (all []Passing) {
	for _, x := range o.passingThrough(d) {
		all = append(all, Passing{x.stage, x.microbatch, Interval{o.moments.number(x.from), o.moments.number(x.to)}})
	}
	return all
}

// dividedGradients returns the bytes of the buffers of a device for gradients that pass through it, and for weights. Each is as large as the
// gradients of the largest of its stages that divide theirs.
func (c account) dividedGradients(costs *Costs, d int) (bytes int64) {
	if !c.dividesGradients() {
		return 0
	}
	for _, x := range c.divided {
		if st := c.plan.Stages[x.stage]; slices.Contains(x.line, d) && c.dividedCopies(x.stage) > 0 {
			bytes = max(bytes, costs.Weights(st.First, st.Last))
		}
	}
	if bytes == 0 {
		return 0
	}
	turns := 0
	if c.dividesWeights() {
		turns = min(len(c.weightTurns(d)), weightBuffers)
	}
	all := c.passingThrough(d)
	return bytes * int64(turns+Turns(len(all), func(i, later int) bool { return less(all[later].from, all[i].to) }))
}

// dividedCopies returns the copies of the weights of a stage of which each replica has its parts: gradients, and weights. With less than two
// copies a plan counts no gradients.
func (c account) dividedCopies(s int) float64 {
	if !c.dividesGradients() || stageOf(c.divided, s) == nil || c.copies(s, 0, 0) < 2 {
		return 0
	}
	return float64(c.plan.Zero - ZeroShards)
}
