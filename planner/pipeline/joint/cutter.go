package joint

// joint: contiguous stages under 1F1B* with replicas, each with or without ops of its own.
//
// A stage on r devices that take minibatches in turn is one virtual stage that takes a minibatch every r periods of T. The boundary between
// two such stages is one virtual boundary, whose links take a minibatch every lcm(r, r') periods (periodic.StarFrom). So loadline's facts
// about a stage hold with r·T for T. The delay of a stage follows from the delay of the stages behind it, and its memory from its own
// delay. When two placements put the same last layers on the same devices, the one with the shorter delay is better for all stages before.
// A dynamic program over (first layer placed, devices of its stage) decides whether a time T for each minibatch is possible, and T is
// bisected. With replicas a longer T can need more minibatches in flight, so there may be a shorter one than bisection finds. After
// bisection come loadline's exact search for its own period, and the judge.
//
// Synchronization: in each round of r minibatches the gradients of a stage's replicas are added up along the line of its devices, and the
// sum goes back. Each link between neighbours carries the bytes of the weights once in each direction, so r·T is at least the time of both
// transfers. These links carry nothing else.
//
// Time: for P devices in G groups (G <= P(P+1)/2), O(n²G + nGP) for each T, beside the sequences.

import (
	"context"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/pipeline/recompute"
)

// cutter cuts a chain into stages, each on a group of devices.
type cutter struct {
	pipeline.Request
	without Ingredients
	costs   *pipeline.Costs
	need    *periodic.Footprint
	seqs    *recompute.Sequences
	groups  []group
	sums    bool // messages add up the gradients of replicas
	// of bound
	fastest float64   // bytes/s of the fastest link
	working [][]int64 // see work
	kept    *keeper
	// tables, by group and layer
	delay, after [][]float64 // of the stage that begins with the layer; of what comes behind the layer
	choice       [][]choice  // what the delay comes from
	follower     [][]int     // the group of the stage behind the layer
}

// choice is a stage: its last layer, the group of the next one, and how it runs.
type choice struct{ last, next, live, number int }

const none = -1

func newCutter(ctx context.Context, r pipeline.Request, without Ingredients) (*cutter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := &cutter{Request: r, without: without, costs: pipeline.NewCosts(r.Chain), groups: groups(r.Platform, without)}
	var err error
	if c.need, err = periodic.NewFootprint(c.costs, r, 0); err != nil {
		return nil, err
	}
	c.seqs = recompute.New(c.costs, min(largest(r.Platform), 1<<60)).Until(ctx)
	c.sums = slices.ContainsFunc(c.groups, func(g group) bool { return g.perByte > 0 })
	n := c.costs.Len()
	for x := range r.Platform.Devices {
		for y := range x {
			c.fastest = max(c.fastest, r.Platform.Beta(x, y))
		}
	}
	for range c.groups {
		c.delay, c.after = append(c.delay, make([]float64, n+2)), append(c.after, make([]float64, n+2))
		c.choice, c.follower = append(c.choice, make([]choice, n+2)), append(c.follower, make([]int, n+2))
	}
	return c, nil
}

// largest returns the most memory of a device.
func largest(p *pipeline.Platform) (most int64) {
	for _, m := range p.Memory {
		most = max(most, m)
	}
	return most
}

// cut returns stages that take a minibatch in each period within the memory; nil when there are none.
func (c *cutter) cut(ctx context.Context, period float64) ([]pipeline.Stage, error) {
	n := c.costs.Len()
	for g := len(c.groups) - 1; g >= 0; g-- {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.link(g, period)
		for l := range c.delay[g] {
			c.delay[g][l] = math.Inf(1)
		}
		for last := n; last >= 1 && ctx.Err() == nil; last-- {
			c.end(g, last, period)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	best := none
	for g := range c.groups {
		if x := c.delay[g][1]; !math.IsInf(x, 1) && (best == none || x < c.delay[best][1]) {
			best = g
		}
	}
	if best == none {
		return nil, nil
	}
	return c.stages(best), nil
}

// link computes what a group has to wait for behind each layer: the best stage of the next groups and the boundary to it.
func (c *cutter) link(g int, period float64) {
	n := c.costs.Len()
	for l := 1; l < n; l++ {
		c.after[g][l] = math.Inf(1)
		bytes := float64(c.Chain.Activation(l) + c.Chain.Gradient(l))
		for _, e := range c.groups[g].next {
			delay := c.delay[e.to][l+1]
			ok := !math.IsInf(delay, 1)
			if load := bytes / e.beta; ok && load > 0 {
				delay, ok = periodic.Around(delay, load, float64(e.every)*period)
			}
			if ok && delay < c.after[g][l] {
				c.after[g][l], c.follower[g][l] = delay, e.to
			}
		}
	}
	c.after[g][n] = 0
}

// end tries all stages of a group that end with a layer.
func (c *cutter) end(g, last int, period float64) {
	after, on := c.after[g][last], c.groups[g]
	if math.IsInf(after, 1) {
		return
	}
	turn, heaviest := float64(on.count)*period, int64(0)
	for first := last; first >= 1; first-- {
		heaviest = max(heaviest, c.costs.Summed(first, first))
		if on.perByte*float64(c.costs.Summed(first, last)) > turn {
			return
		}
		delay, ok := periodic.Around(after, c.costs.U(first, last), turn)
		if !ok {
			return // and longer stages neither
		}
		if delay >= c.delay[g][first] || c.without.Stages && last-first+1 < c.costs.Len() {
			continue // and ops make it no shorter
		}
		way, memory := choice{last: last, live: periodic.Live(delay, turn), number: none}, on.memory
		if c.sums && on.count > 1 {
			memory -= c.need.SumsOf(c.costs.Summed(first, last), heaviest)
		}
		if c.need.Bytes(0, first, last, way.live) > memory {
			if c.without.Recomputation {
				continue
			}
			if delay, way = c.recompute(g, first, last, turn, memory); delay >= c.delay[g][first] {
				continue
			}
		}
		way.next = c.follower[g][last]
		c.delay[g][first], c.choice[g][first] = delay, way
	}
}

// recompute returns the shortest delay of a stage with ops in so many bytes, +Inf when none fits.
func (c *cutter) recompute(g, first, last int, turn float64, memory int64) (delay float64, way choice) {
	after := c.after[g][last]
	delay, way = math.Inf(1), choice{last: last}
	shortest, _ := periodic.Around(after, c.costs.U(first, last), turn)
	for live, least := periodic.Live(shortest, turn), periodic.Live(shortest, turn); live <= least+1; live++ {
		number, again, ok := c.seqs.Fastest(first, last, live, memory-c.fixed(first, last, live))
		if !ok {
			continue
		}
		if x, ok := periodic.Around(after, c.costs.U(first, last)+again, turn); ok && x < delay && periodic.Live(x, turn) <= live {
			delay, way.live, way.number = x, live, number
		}
	}
	return delay, way
}

// fixed returns the bytes of a stage with ops beside its sequence: weights, buffers and the inputs of so many
// minibatches.
func (c *cutter) fixed(first, last, live int) int64 {
	return c.need.Static(0, first, last, live) + int64(live)*c.Chain.Activation(first-1)
}

// stages reads the choices, from a stage of a group that begins with layer 1. Where all devices are alike, they are counted from 0.
func (c *cutter) stages(g int) (all []pipeline.Stage) {
	shift := 0
	if c.Platform.Uniform() {
		shift = c.groups[g].first
	}
	for first := 1; first <= c.costs.Len(); {
		s, on := c.choice[g][first], c.groups[g]
		on.first -= shift
		st := pipeline.Stage{First: first, Last: s.last, Devices: on.devices()}
		if s.number != none {
			st.Ops = c.seqs.Ops(first, s.last, s.live, s.number)
		}
		all = append(all, st)
		first, g = s.last+1, s.next
	}
	return all
}

// precision is how close to the shortest period that the dynamic program has bisection comes.
const precision = 1e-6

// best returns the stages for which bisection finds the shortest period; nil when none fit.
func (c *cutter) best(ctx context.Context) (stages []pipeline.Stage, err error) {
	low, high := 0.0, c.shortest()
	for {
		if stages, err = c.cut(ctx, high); err != nil || stages != nil && low == 0 {
			return stages, err // nothing is shorter
		}
		if stages != nil {
			break
		}
		if low = high; high > c.longest() {
			return nil, nil
		}
		high *= growth
	}
	for high > low*(1+precision) {
		middle := (low + high) / 2
		found, err := c.cut(ctx, middle)
		switch {
		case err != nil:
			return nil, err
		case found == nil:
			low = middle
		default:
			stages, high = found, middle
		}
	}
	return stages, nil
}

// growth is the step with which the first period that is possible is looked for: stages that it does not allow need no sequences.
const growth = 1.25

// shortest returns a time that no period can go below.
func (c *cutter) shortest() float64 {
	return max(c.costs.U(1, c.costs.Len())/float64(c.Platform.Devices), periodic.Instant)
}

// longest returns a period at which every way to run every stage fits in time.
func (c *cutter) longest() float64 {
	n := c.costs.Len()
	again, bytes := 0.0, int64(0)
	for l := 1; l <= n; l++ {
		again += c.Chain.Layer(l).DiscardSeconds()
		bytes = max(bytes, c.Chain.Activation(l)+c.Chain.Gradient(l))
	}
	beta, perByte := math.Inf(1), 0.0
	for _, g := range c.groups {
		perByte = max(perByte, g.perByte)
		for _, e := range g.next {
			beta = min(beta, e.beta)
		}
	}
	return max(2*(c.costs.U(1, n)+float64(n)*again)+float64(n)*float64(bytes)/beta, perByte*float64(c.costs.Summed(1, n)), periodic.Instant*16)
}

// infeasible returns the error for a memory that is too small for any stages.
func infeasible(devices int, smallest int64) error {
	return &pipeline.InfeasibleError{Strategy: name, Smallest: smallest, Found: true,
		Reason: fmt.Sprintf("no stages fit on %d devices, not even with one live minibatch each and everything recomputed", devices)}
}

const name = "joint"
