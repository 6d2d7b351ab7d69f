package partition

// contiguous: the best partition with one stage on each device, scheduled by 1F1B*.
//
// For a given period, the memory of a stage follows from the delay of the stages after it (thesis, 7.1.1; Theorem 15 makes it exact). When
// two placements have the same last layers, the one with the shorter delay leaves more to all stages before. So a dynamic program over
// (first layer placed, its device) decides exactly whether the period is possible. More time never needs more memory, so the period is
// bisected. Every partition that is found gives its own exact smallest period (Algorithm 7); the search ends when nothing is possible just
// below the best one. Stages take the devices in their order; where devices or links differ, some may be left out.
// Time: O(P n²) for a period, O(P² n) more where devices differ.

import (
	"context"
	"fmt"
	"math"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

func solveContiguous(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	const name = "contiguous"
	c, err := newCutter(ctx, r)
	if err != nil {
		return nil, err
	}
	stages, err := c.best(ctx)
	if err != nil {
		return nil, err
	}
	if stages == nil {
		return nil, c.infeasible(ctx, name)
	}
	r.Stages = stages
	return periodic.Star(ctx, name, r)
}

// cutter cuts a chain into stages, one on each device.
type cutter struct {
	pipeline.Request
	costs *pipeline.Costs
	need  *periodic.Footprint
	next  [][]int // of each device: those that may have the stage after its own
	// tables, by device and layer
	delay, after [][]float64 // of the stage that begins with the layer; of what comes after the layer
	choice       [][]stage   // what the delay comes from
	follower     [][]int     // the device of the stage after the layer
}

type stage struct{ last, next int } // the last layer, the device of the next stage

func newCutter(ctx context.Context, r pipeline.Request) (*cutter, error) {
	costs, err := newCosts(ctx, r)
	if err != nil {
		return nil, err
	}
	c := &cutter{Request: r, costs: costs, next: r.Platform.Followers()}
	if c.need, err = periodic.NewFootprint(costs, r, 0); err != nil {
		return nil, err
	}
	n := costs.Len()
	for range r.Platform.Devices {
		c.delay, c.after = append(c.delay, make([]float64, n+2)), append(c.after, make([]float64, n+2))
		c.choice, c.follower = append(c.choice, make([]stage, n+2)), append(c.follower, make([]int, n+2))
	}
	return c, nil
}

// best returns the stages with the smallest period; nil when none fit.
func (c *cutter) best(ctx context.Context) ([]pipeline.Stage, error) {
	high := c.alone()
	best := c.cut(high)
	if best == nil {
		return nil, nil
	}
	low := 0.0
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if high = min(high, c.period(best)); high <= periodic.Instant {
			return best, nil
		}
		closer := c.cut(high * (1 - 1e-10))
		if closer == nil {
			return best, nil
		}
		best, high = closer, high*(1-1e-10)
		if middle := (low + high) / 2; middle > low && middle < high {
			if closer = c.cut(middle); closer == nil {
				low = middle
			} else {
				best, high = closer, middle
			}
		}
	}
}

// alone returns a time in which a minibatch passes all layers and all boundaries alone.
func (c *cutter) alone() float64 {
	n := c.costs.Len()
	total := c.costs.U(1, n)
	for d := range c.next {
		for _, e := range c.next[d] {
			sum := c.costs.U(1, n)
			for l := 1; l < n; l++ {
				sum += c.seconds(l, d, e)
			}
			total = max(total, sum)
		}
	}
	return max(total, periodic.Instant)
}

// seconds returns C(l) between two devices.
func (c *cutter) seconds(l, d, e int) float64 {
	return c.Platform.Seconds(c.Chain.Activation(l), d, e) + c.Platform.Seconds(c.Chain.Gradient(l), d, e)
}

func (c *cutter) period(stages []pipeline.Stage) float64 {
	r := c.Request
	r.Stages = stages
	period, ok := periodic.Tightest(r)
	if !ok {
		panic("BUG: stages that fit do not fit")
	}
	return period
}

// cut returns stages that 1F1B* runs with this period within the memory; nil when there are none.
func (c *cutter) cut(period float64) []pipeline.Stage {
	n := c.costs.Len()
	for d := c.Platform.Devices - 1; d >= 0; d-- {
		c.link(d, period)
		for l := range c.delay[d] {
			c.delay[d][l] = math.Inf(1)
		}
		for last := n; last >= 1; last-- {
			c.end(d, last, period)
		}
	}
	device := -1
	for d := range c.delay {
		if best := c.delay[d][1]; !math.IsInf(best, 1) && (device < 0 || best < c.delay[device][1]) {
			device = d
		}
	}
	if device < 0 {
		return nil
	}
	return c.stages(device)
}

// link computes what device d has to wait for behind each layer: the best stage there and the boundary to it.
func (c *cutter) link(d int, period float64) {
	n := c.costs.Len()
	for l := 1; l < n; l++ {
		c.after[d][l] = math.Inf(1)
		for _, e := range c.next[d] {
			if math.IsInf(c.delay[e][l+1], 1) {
				continue
			}
			load := c.seconds(l, d, e)
			delay, ok := c.delay[e][l+1], true
			if load > 0 {
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
	if math.IsInf(c.after[d][last], 1) {
		return
	}
	for first := last; first >= 1; first-- {
		delay, ok := periodic.Around(c.after[d][last], c.costs.U(first, last), period)
		if !ok {
			return // and longer stages neither
		}
		if delay < c.delay[d][first] && c.need.Bytes(0, first, last, periodic.Live(delay, period)) <= c.Platform.Memory[d] {
			c.delay[d][first], c.choice[d][first] = delay, stage{last, c.follower[d][last]}
		}
	}
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
		all = append(all, pipeline.Stage{First: first, Last: s.last, Devices: []int{device - shift}})
		first, device = s.last+1, s.next
	}
	return all
}

// infeasible returns the error for a memory that is too small for any stages, or the context's.
func (c *cutter) infeasible(ctx context.Context, strategy string) error {
	e := &pipeline.InfeasibleError{Strategy: strategy, Smallest: c.least(c.next)}
	e.Reason = c.tooLarge()
	if c.Platform.Uniform() && e.Reason == "" {
		var err error
		if e.Devices, err = c.enough(ctx); err != nil {
			return err
		}
	}
	if e.Reason == "" {
		e.Reason = fmt.Sprintf("no stages fit on %d devices, not even with one live minibatch each", c.Platform.Devices)
	}
	return e
}

// tooLarge names a layer that fits on no device.
func (c *cutter) tooLarge() string {
	most := int64(0)
	for _, m := range c.Platform.Memory {
		most = max(most, m)
	}
	for l := 1; l <= c.costs.Len(); l++ {
		// Buffers of a stage may exceed those of the layer or not: without them the figure holds for every stage.
		need := c.need.Bytes(0, l, l, 1) - c.need.Boundary(l-1) - c.need.Boundary(l)
		if need > most {
			return fmt.Sprintf("layer %d (%s) needs %s on every device, the largest has %s", l, c.Chain.Layer(l).Name, units.Precise(need), units.Precise(most))
		}
	}
	return ""
}

// enough returns with how many more devices, all alike, some stages fit, with one live minibatch each; 0 when no number
// is enough. Each round gives the layers from first on one device more. Time: O(n²) for each.
func (c *cutter) enough(ctx context.Context) (int, error) {
	n, limit := c.costs.Len(), c.Platform.Smallest()
	rest := c.nothing()
	for devices := 1; devices <= min(n, pipeline.MaxDevices); devices++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		row := c.row(rest)
		if row[1] <= limit && devices > c.Platform.Devices {
			return devices, nil
		}
		if slices.Equal(rest[1:n], row[2:n+1]) { // nor do more devices change it
			return 0, nil
		}
		copy(rest[1:n], row[2:n+1])
	}
	return 0, nil
}

// nothing returns, for every layer, the memory that what comes after it needs where there are no more devices: none after
// the last layer, else no memory is enough.
func (c *cutter) nothing() []int64 {
	rest := make([]int64, c.costs.Len()+1)
	for l := range c.costs.Len() {
		rest[l] = math.MaxInt64
	}
	return rest
}

// row returns, for every layer, the smallest memory at which a stage that begins with it fits with the stages after it.
// Argument rest is the smallest memory of these, by the last layer of the stage.
func (c *cutter) row(rest []int64) []int64 {
	n := c.costs.Len()
	row := make([]int64, n+2)
	for first := 1; first <= n; first++ {
		row[first] = math.MaxInt64
		for last := first; last <= n; last++ {
			row[first] = min(row[first], max(rest[last], c.need.Bytes(0, first, last, 1)))
		}
	}
	return row
}

// least returns the smallest memory of each device at which some stages fit, with one live minibatch each.
func (c *cutter) least(next [][]int) int64 {
	n := c.costs.Len()
	table := make([][]int64, len(next))
	smallest := int64(math.MaxInt64)
	for d := len(next) - 1; d >= 0; d-- {
		rest := c.nothing()
		for last := 1; last < n; last++ {
			for _, e := range next[d] {
				rest[last] = min(rest[last], table[e][last+1])
			}
		}
		table[d] = c.row(rest)
		smallest = min(smallest, table[d][1])
	}
	return smallest
}
