package loadline

// loadline: contiguous stages under 1F1B*, each with or without ops of its own.
//
// For a period T, the memory of a stage follows from the delay of the stages after it (thesis, 7.1.1, Theorem 15). A delay is the time from
// the start of the next forward to the end of the next backward; ⊕ is periodic.Around. A stage without ops has the shortest delay. Where it
// does not fit, the stage takes the fastest sequence that fits with the number of live minibatches that its time leads to. That number is
// Live(after ⊕ U) or one more, as a stage takes a period at most. When two placements have the same last layers, the one with the shorter
// delay leaves more to all stages before. So a dynamic program over (first layer placed, device) decides whether a period is possible. With
// the sequences fixed, more time never needs more memory, so the period is bisected; the placement that is found gives its own exact
// smallest period.

import (
	"context"
	"math"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/pipeline/recompute"
)

// cutter cuts a chain into stages, one on each device, in the order of the devices.
type cutter struct {
	pipeline.Request
	costs *pipeline.Costs
	need  *periodic.Footprint
	seqs  *recompute.Sequences
	rich  *recompute.Sequences // of stages that offload; nil as long as none may
	known map[[3]int]*whole    // of stages that offload everything, by first and last layer and number in rich
	next  [][]int              // of each device: those that may have the stage after its own
	// tables, by device and layer
	delay, after [][]float64 // of the stage that begins with the layer; of what comes after the layer
	choice       [][]choice  // what the delay comes from
	follower     [][]int     // the device of the stage after the layer
}

// choice is a stage: its last layer, the device of the next one, and how it runs.
type choice struct {
	last, next   int
	live, number int // number: none without ops
	moves        int // activations that are offloaded
}

const none = -1

func newCutter(ctx context.Context, r pipeline.Request) (*cutter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := &cutter{Request: r, costs: pipeline.NewCosts(r.Chain), next: r.Platform.Followers(), known: map[[3]int]*whole{}}
	var err error
	if c.need, err = periodic.NewFootprint(c.costs, r, 0); err != nil {
		return nil, err
	}
	most := int64(0)
	for _, m := range r.Platform.Memory {
		most = max(most, min(m, 1<<60))
	}
	c.seqs = recompute.New(c.costs, most).Until(ctx)
	n := c.costs.Len()
	for range r.Platform.Devices {
		c.delay, c.after = append(c.delay, make([]float64, n+2)), append(c.after, make([]float64, n+2))
		c.choice, c.follower = append(c.choice, make([]choice, n+2)), append(c.follower, make([]int, n+2))
	}
	return c, nil
}

// cut returns stages that 1F1B* runs with this period within the memory; nil when there are none.
func (c *cutter) cut(ctx context.Context, period float64) ([]pipeline.Stage, error) {
	n := c.costs.Len()
	for d := c.Platform.Devices - 1; d >= 0; d-- {
		c.link(d, period)
		for l := range c.delay[d] {
			c.delay[d][l] = math.Inf(1)
		}
		for last := n; last >= 1; last-- {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c.end(d, last, period)
		}
	}
	device := none
	for d := range c.delay {
		if best := c.delay[d][1]; !math.IsInf(best, 1) && (device == none || best < c.delay[device][1]) {
			device = d
		}
	}
	if device == none {
		return nil, nil
	}
	return c.stages(device), nil
}

// link computes what device d has to wait for behind each layer: the best stage there and the boundary to it.
func (c *cutter) link(d int, period float64) {
	n := c.costs.Len()
	for l := 1; l < n; l++ {
		c.after[d][l] = math.Inf(1)
		for _, e := range c.next[d] {
			delay := c.delay[e][l+1]
			load := c.Platform.Seconds(c.Chain.Activation(l), d, e) + c.Platform.Seconds(c.Chain.Gradient(l), d, e)
			ok := !math.IsInf(delay, 1)
			if ok && load > 0 {
				delay, ok = periodic.Around(delay, load, period)
			}
			if ok && delay < c.after[d][l] {
				c.after[d][l], c.follower[d][l] = delay, e
			}
		}
	}
	c.after[d][n] = 0
}

// end tries all stages of device d that end with a layer.
func (c *cutter) end(d, last int, period float64) {
	after := c.after[d][last]
	if math.IsInf(after, 1) {
		return
	}
	for first := last; first >= 1; first-- {
		delay, ok := periodic.Around(after, c.costs.U(first, last), period)
		if !ok {
			return // and longer stages neither
		}
		if delay >= c.delay[d][first] {
			continue // and ops make it no shorter
		}
		way := choice{last: last, live: periodic.Live(delay, period), number: none}
		if c.need.Bytes(0, first, last, way.live) > c.Platform.Memory[d] {
			delay, way = c.squeeze(d, first, last, period)
		}
		if delay < c.delay[d][first] {
			way.next = c.follower[d][last]
			c.delay[d][first], c.choice[d][first] = delay, way
		}
	}
}

// squeeze returns the shortest delay of a stage with ops, +Inf when none fits.
func (c *cutter) squeeze(d, first, last int, period float64) (delay float64, way choice) {
	delay, live, number := c.recompute(d, first, last, period)
	way = choice{last: last, live: live, number: number}
	if c.rich == nil {
		return delay, way
	}
	if shorter, with, ok := c.offload(d, first, last, period, min(delay, c.delay[d][first])); ok {
		return shorter, with
	}
	return delay, way
}

// recompute returns the shortest delay of a stage with ops and without transfers, +Inf when none fits.
func (c *cutter) recompute(d, first, last int, period float64) (delay float64, live, number int) {
	delay = math.Inf(1)
	shortest, _ := periodic.Around(c.after[d][last], c.costs.U(first, last), period)
	for g, least := periodic.Live(shortest, period), periodic.Live(shortest, period); g <= least+1; g++ {
		at, again, ok := c.seqs.Fastest(first, last, g, c.Platform.Memory[d]-c.fixed(first, last, g))
		if !ok {
			continue
		}
		load := c.costs.U(first, last) + again
		if x, ok := periodic.Around(c.after[d][last], load, period); ok && x < delay && periodic.Live(x, period) <= g {
			delay, live, number = x, g, at
		}
	}
	return delay, live, number
}

// fixed returns the bytes of a stage with ops beside its sequence: weights, buffers and the inputs of g minibatches.
func (c *cutter) fixed(first, last, g int) int64 {
	return c.static(first, last, g) + int64(g)*c.Chain.Activation(first-1)
}

// static returns the weights and buffers of a stage with g live minibatches.
func (c *cutter) static(first, last, g int) int64 {
	return c.need.Static(0, first, last, g)
}

// stages reads the choices, from a stage that begins with layer 1 on a device. Where all devices are alike, they are
// counted from 0.
func (c *cutter) stages(device int) []pipeline.Stage {
	shift := 0
	if c.Platform.Uniform() {
		shift = device
	}
	var all []pipeline.Stage
	for first := 1; first <= c.costs.Len(); {
		s := c.choice[device][first]
		st := pipeline.Stage{First: first, Last: s.last, Devices: []int{device - shift}}
		switch {
		case s.moves > 0:
			st.Ops = c.rich.Ops(first, s.last, resident, s.number)
			st.Ops = offloading(st, s.moves)
		case s.number != none:
			st.Ops = c.seqs.Ops(first, s.last, s.live, s.number)
		}
		all = append(all, st)
		first, device = s.last+1, s.next
	}
	return all
}

// longest returns a period at which every way to run every stage fits in time.
func (c *cutter) longest() float64 {
	n := c.costs.Len()
	again := 0.0
	for l := 1; l <= n; l++ {
		again += c.Chain.Layer(l).DiscardSeconds()
	}
	total := c.costs.U(1, n) + float64(n)*again
	slowest := 0.0
	for d := range c.next {
		for _, e := range c.next[d] {
			for l := 1; l < n; l++ {
				slowest = max(slowest, c.Platform.Seconds(c.Chain.Activation(l)+c.Chain.Gradient(l), d, e))
			}
		}
	}
	return max(2*total+slowest*float64(n), math.SmallestNonzeroFloat64*16)
}

// growth is the step with which the first period that is possible is looked for: stages that it does not allow need no sequences.
const growth = 1.25

// shortest returns a time that no period can go below.
func (c *cutter) shortest() float64 {
	n := c.costs.Len()
	bound := c.costs.U(1, n) / float64(c.Platform.Devices)
	for l := 1; l <= n; l++ {
		bound = max(bound, c.costs.U(l, l))
	}
	if bound <= 0 {
		return instant
	}
	return bound
}

// instant is a period of a pipeline in which nothing takes time.
const instant = 1e-9
