package pipeline

import (
	"fmt"
	"slices"
)

// reachable refuses replicas that a link is missing between where all send to all.
func (l *layout) reachable(stages []replicatedStage) error {
	if !l.sharded() {
		return nil
	}
	for _, x := range stages {
		if from, to, lacks := l.platform.unjoined(x.line); lacks {
			return fmt.Errorf("%w: field \"zero\" is %d: replicas of stage %d send to each other, and no link joins devices %d and %d", ErrPlan, l.plan.Zero, x.stage, from, to)
		}
	}
	return nil
}

// unjoined returns two devices of a line that no link joins.
func (p *Platform) unjoined(line []int) (int, int, bool) {
	for i, y := range line {
		for _, x := range line[:i] {
			if p.Beta(y, x) == 0 {
				return x, y, true
			}
		}
	}
	return None, None, false
}

// messages returns how many reduces a bucket has, at most.
func (y *synchronizer) messages(parts bool) int {
	most := 1
	for _, x := range y.stages {
		switch r := len(x.line); {
		case parts && y.sharded():
			most = max(most, r)
		case parts:
			most = max(most, r*(r-1))
		}
	}
	return most
}

// smallestPart is the least mean size of parts of several buckets, of several stages that one is divided into, and of any where a bucket need not
// go in parts. A run divides tensors only after whole partial sums of the norm, 64 KiB, so that smaller parts would not be as equal as planned.
const smallestPart = 1 << 20 // bytes

// large reports whether the parts of so many buckets of a stage are not too small.
func (x *replicatedStage) large(buckets int) bool {
	return x.weights >= smallestPart*int64(buckets)*int64(len(x.line))
}

// divides reports whether buckets of a stage go in parts where a choice has it so.
func (y *synchronizer) divides(x *replicatedStage, c choice) bool {
	if !c.parts || y.sharded() {
		return c.parts
	}
	_, _, lacks := y.platform.unjoined(x.line)
	return !lacks && x.large(min(c.buckets, y.plan.Stages[x.stage].Len()))
}

// possible reports whether buckets can go as a choice has it: in parts where some stage divides them, and none that must is too small.
func (y *synchronizer) possible(c choice) bool {
	if !c.parts {
		return true
	}
	may := func(x replicatedStage) bool { return y.divides(&x, c) }
	if y.sharded() {
		return c.buckets == 1 || !slices.ContainsFunc(y.stages, func(x replicatedStage) bool { return !x.large(min(c.buckets, y.mostLayers())) })
	}
	return y.period == nil && !y.whole && slices.ContainsFunc(y.stages, may)
}

// exchanged returns the messages of a choice between all devices of stages and the owners of parts, each of which is ready at some time.
func (y *synchronizer) exchanged(c choice, kind SynchronizationKind, ready func(m *placedMessage, from int, below float64) float64) (all passages) {
	for i := range y.rounds {
		g := &y.rounds[i]
		r := len(g.stage.line)
		if !y.divides(g.stage, c) || kind == Gather && !divisionOf(y.layout).gathered(g.last) {
			continue
		}
		for _, b := range y.buckets(g.stage, c.buckets) {
			bytes, below := weights(y.chain, b[0], b[1]), y.behind(g.stage, b[0])
			for hop := 1; hop < r; hop++ { // all devices send to another one each
				for from := range r {
					owner, m := (from+hop)%r, placedMessage{of: g, first: b[0], last: b[1], kind: kind}
					m.from, m.to = g.stage.line[from], g.stage.line[owner]
					if kind == Gather {
						owner = from
					}
					m.part = owner + 1
					all = append(all, &passage{of: g, first: b[0], last: b[1], bytes: PartBytes(bytes, m.part, r), only: &m, ready: ready(&m, from, below)})
				}
			}
		}
	}
	return all
}

// behind returns the seconds of a stage's backward behind the gradients of a layer.
func (y *synchronizer) behind(x *replicatedStage, first int) (below float64) {
	for l := y.plan.Stages[x.stage].First; l < first; l++ {
		below += y.chain.Layer(l).BackwardS
	}
	return below
}

// scattered returns the messages of gradients to the owners of their parts, each when the device that sends has made them.
func (y *synchronizer) scattered(c choice) passages {
	return y.exchanged(c, Reduce, func(m *placedMessage, from int, below float64) float64 { return m.of.made[from].at(1, below) })
}

// gathered returns the messages of parts from their owners. A part goes when its reduces have come, and the owner has made its own gradients.
// New weights go when all gradients of the step are made, and have come.
func (y *synchronizer) gathered(c choice, reduces []placedMessage) passages {
	type part struct {
		of          *gradients
		first, part int
	}
	all, come := 0.0, map[part]float64{}
	for _, m := range reduces {
		end, at := m.start+m.length, part{m.of, m.first, m.part}
		come[at], all = max(come[at], end), max(all, end)
	}
	for _, j := range y.jobs {
		if j.bucket == nil && !j.kind.Communication() {
			all = max(all, y.seconds(j.end()))
		}
	}
	return y.exchanged(c, Gather, func(m *placedMessage, owner int, below float64) float64 {
		if y.sharded() {
			return all
		}
		return max(come[part{m.of, m.first, m.part}], m.of.made[owner].at(1, below))
	})
}
