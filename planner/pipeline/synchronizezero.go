package pipeline

import "fmt"

// reachable refuses replicas that a link is missing between where all send to all.
func (l *layout) reachable(stages []replicatedStage) error {
	if !l.sharded() {
		return nil
	}
	for _, x := range stages {
		for i, from := range x.line {
			for _, to := range x.line[:i] {
				if l.platform.Beta(from, to) == 0 {
					return fmt.Errorf("%w: field \"zero\" is %d: replicas of stage %d send to each other, and no link joins devices %d and %d", ErrPlan, l.plan.Zero, x.stage, to, from)
				}
			}
		}
	}
	return nil
}

// factor returns how many parts a bucket has, at most.
func (y *synchronizer) factor() int {
	most := 1
	for i := range y.stages {
		most = max(most, y.parts(&y.stages[i]))
	}
	return most
}

// smallestPart is the least mean size of parts of several buckets. A run divides tensors only after whole partial sums of the norm, 64
// KiB, so that smaller parts would not be as equal as planned.
const smallestPart = 1 << 20 // bytes

// divides reports whether stages have so many buckets whose parts are not too small.
func (y *synchronizer) divides(buckets int) bool {
	for _, x := range y.stages {
		if y.sharded() && x.weights < smallestPart*int64(buckets*len(x.line)) {
			return false
		}
	}
	return true
}

// exchanged returns the messages of a choice between all devices of stages and the owners of parts, each of which is ready at some time.
func (y *synchronizer) exchanged(c choice, kind SynchronizationKind, ready func(g *gradients, from int, below float64) float64) (all passages) {
	for i := range y.rounds {
		g := &y.rounds[i]
		r := len(g.stage.line)
		for _, b := range y.buckets(g.stage, c.buckets) {
			bytes, below := weights(y.chain, b[0], b[1]), 0.0
			for l := y.plan.Stages[g.stage.stage].First; l < b[0]; l++ {
				below += y.chain.Layer(l).BackwardS
			}
			for hop := 1; hop < r; hop++ { // all devices send to another one each
				for from := range r {
					owner, m := (from+hop)%r, placedMessage{of: g, first: b[0], last: b[1], kind: kind}
					m.from, m.to = g.stage.line[from], g.stage.line[owner]
					if kind == Gather {
						owner = from
					}
					m.part = owner + 1
					all = append(all, &passage{of: g, first: b[0], last: b[1], bytes: PartBytes(bytes, m.part, r), only: &m, ready: ready(g, from, below), number: len(all)})
				}
			}
		}
	}
	return all
}

// scattered returns the messages of gradients to the owners of their parts, each when the device that sends has made them.
func (y *synchronizer) scattered(c choice) passages {
	return y.exchanged(c, Reduce, func(g *gradients, from int, below float64) float64 { return g.made[from].at(1, below) })
}

// gathered returns the messages of new weights: when all gradients of the step are made, and have come.
func (y *synchronizer) gathered(c choice, reduces []placedMessage) passages {
	at := 0.0
	for _, j := range y.jobs {
		if j.bucket == nil && !j.kind.Communication() {
			at = max(at, y.seconds(j.end()))
		}
	}
	for _, m := range reduces {
		at = max(at, m.start+m.length)
	}
	return y.exchanged(c, Gather, func(*gradients, int, float64) float64 { return at })
}
