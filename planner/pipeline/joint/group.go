package joint

import (
	"math"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// group is consecutive devices that may have a stage together: its replicas.
type group struct {
	first, count int
	memory       int64   // bytes, of the device that has least
	perByte      float64 // seconds for which the slowest link between neighbours is used, for a byte of weights, in each round
	next         []edge
}

// edge leads to a group that may have the next stage.
type edge struct {
	to    int
	every int     // minibatches from one on a link between the two groups to the next one there
	beta  float64 // bytes/s of the slowest link on which minibatches pass
}

// devices returns the devices of a group.
func (g group) devices() []int {
	all := make([]int, g.count)
	for i := range all {
		all[i] = g.first + i
	}
	return all
}

// anyCount is the most devices of a platform on which every number of replicas is tried, anywhere. Beyond, only numbers without large
// prime factors are tried, so that the common pattern of all replicas of all stages stays short. Within levels these are parts of a
// component of the innermost one, or whole ones.
const anyCount = 16

// groups returns all that may have a stage, in the order of their first devices.
func groups(p *pipeline.Platform, without Ingredients) []group {
	whole := 1
	if len(p.Levels) > 1 {
		whole = p.Levels[0].Devices
	}
	var all []group
	for first := range p.Devices {
		for count := 1; first+count <= p.Devices && (count == 1 || !without.Replicas); count++ {
			inside := first/whole == (first+count-1)/whole
			if many := p.Devices > anyCount; many && (!inside && (first%whole != 0 || count%whole != 0) || count < p.Devices && !smooth(count)) {
				continue
			}
			if g := newGroup(p, first, count); !math.IsInf(g.perByte, 1) {
				all = append(all, g)
			}
		}
	}
	follow(p, all)
	return all
}

// follow finds which groups may have the stage after that of each: those of the devices behind its own or, where devices differ and are
// few, of any later ones.
func follow(p *pipeline.Platform, all []group) {
	skip := p.Devices <= anyCount && !p.Uniform()
	for x := range all {
		for y := range all {
			if behind := all[y].first - all[x].first - all[x].count; behind != 0 && (behind < 0 || !skip) {
				continue
			}
			if every, beta := between(p, all[x], all[y]); beta > 0 {
				all[x].next = append(all[x].next, edge{y, every, beta})
			}
		}
	}
}

// smooth reports whether a number is a power of two, or three times one.
func smooth(n int) bool {
	for n%2 == 0 {
		n /= 2
	}
	return n == 1 || n == 3
}

func newGroup(p *pipeline.Platform, first, count int) group {
	g := group{first: first, count: count, memory: slices.Min(p.Memory[first : first+count])}
	for d := first; d+1 < first+count; d++ {
		g.perByte = max(g.perByte, perByte(p, d, d+1))
	}
	return g
}

// perByte returns how long the synchronization of two neighbouring replicas uses the link between them for a byte of weights. The sum of
// gradients goes there and the sum of all comes back. The result is +Inf if there is no link.
func perByte(p *pipeline.Platform, x, y int) float64 {
	if p.Duplex {
		return 1 / p.Beta(x, y)
	}
	return 2 / p.Beta(x, y)
}

// between returns how minibatches pass from one group to the next; both take turns. Devices i and j meet if i and j differ by a multiple
// of the common divisor of their numbers. The bandwidth is 0 if two that meet have no link.
func between(p *pipeline.Platform, x, y group) (every int, beta float64) {
	every, beta = periodic.LCM(x.count, y.count), math.Inf(1)
	for m := range every {
		beta = min(beta, p.Beta(x.first+m%x.count, y.first+m%y.count))
	}
	return every, beta
}

// Ingredients are the methods that a plan may combine.
type Ingredients struct {
	Stages        bool // several of them: without there is one, on one device or on several that take minibatches in turn
	Replicas      bool // of a stage
	Recomputation bool
}
