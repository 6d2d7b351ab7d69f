package pipeline

import (
	"cmp"
	"math"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// place gives the items of a cyclic plan their places on the device: of the placements that fit, those of the shortest step. A step takes
// what the simulation says when an op waits also for those whose bytes it takes over.
func (c *cyclicStage) place(lay *layout, d *driver, t *localStage, costs Costs, plan *pipeline.Plan, m *Memory) {
	limit := costs.Platform.Memory[0]
	all := c.device.placements(c.leavingBytes(), limit-m.Static, func() bool {
		c.device.shift(runtime.Arena, m.Static)
		_, end := lay.layCyclicEvaluation(d, t, m)
		return end <= limit
	})
	best, shortest := 0, math.Inf(1)
	laid := *plan
	for i := 0; i < len(all) && len(all) > 1; i++ {
		laid.Waits = c.take(t, all[i], m.Static)
		if _, r, err := laid.PlayCycle(costs.Chain, costs.Platform); err == nil && r.Period < shortest*(1-1e-9) {
			best, shortest = i, r.Period
		}
	}
	m.Waits = c.take(t, all[best], m.Static)
	m.InFlight = all[best].live
}

// leavingBytes returns the bytes that a step copies to the host. The sources of these copies stay longer than in the order of
// the sequence.
func (c *cyclicStage) leavingBytes() (bytes int64) {
	for i := range c.ops {
		o := &c.ops[i]
		s := &c.layers[o.Layer-1]
		switch o.Kind {
		case schedule.WriteWeights:
			bytes += s.weightBytes
		case schedule.WriteState:
			bytes += s.stateBytes
		case schedule.OffloadGradient:
			bytes += s.gradBytes
		}
	}
	for _, ops := range c.microbatches {
		for _, it := range ops.Host {
			bytes += kernels.Align(it.Bytes)
		}
	}
	return bytes
}

// take places the items, behind what never moves, and returns what each op waits for then, by position.
func (c *cyclicStage) take(t *localStage, p placement, static int64) [][]int {
	c.device.placement = p
	c.device.shift(runtime.Arena, static)
	c.depend(t)
	waits := make([][]int, len(c.ops))
	for i := range c.ops {
		waits[i] = slices.Clone(c.ops[i].waits)
	}
	return waits
}

// placements packs the items in several ways, and returns those that fit, the ones with most slack first. Where it can, an item keeps its place
// as long as ops may begin beside the last one that uses it. These then wait for nothing but what the plan lets them wait for. That may take so
// many more bytes, all of them within the room, and must leave what is laid around the items a place that fits. The last placement is of
// items that live no longer than in the order of the sequence, which need not fit.
func (c *circle) placements(more, room int64, fits func() bool) (all []placement) {
	tight := placement{slices.Clone(c.items), pack.LiveCircle(c.items, c.positions), 0}
	tight.extent = pack.Circle(tight.items, c.positions)
	if tight.extent > room {
		return []placement{tight}
	}
	p := &prolonger{circle: c, room: min(room, tight.extent+more), fits: fits}
	for slack := range slacks {
		p.slack, p.tries, p.latest = slack, 0, tight
		list := p.brief()
		if len(list) == 0 || p.try(list) {
			all = append(all, p.latest)
			break
		}
		for _, less := range []func(a, b *pack.Item) int{
			func(a, b *pack.Item) int { return cmp.Compare(a.Bytes, b.Bytes) },
			func(a, b *pack.Item) int { return cmp.Compare(b.Bytes, a.Bytes) },
			func(a, b *pack.Item) int { return cmp.Compare(a.Last, b.Last) },
		} {
			slices.SortStableFunc(list, func(i, j int) int { return less(&tight.items[i], &tight.items[j]) })
			p.tries, p.latest = 0, tight
			p.prolong(list)
			all = append(all, p.latest)
		}
	}
	return append(all, tight)
}

// prolonger lets items keep their places longer than the order of the sequence asks for.
type prolonger struct {
	*circle
	room   int64
	fits   func() bool
	slack  int
	tries  int
	latest placement // that fits
}

// mostTries bounds the packings of one search, by the number of items: packing takes their square.
func (p *prolonger) mostTries() int { return min(12, 20_000_000/(len(p.items)*len(p.items)+1)) }

// brief lists the items that live no longer than in the order of the sequence where slack would let them.
func (p *prolonger) brief() (list []int) {
	for i := range p.latest.items {
		if x := &p.latest.items[i]; p.lastOf(x, i) > x.Last {
			list = append(list, i)
		}
	}
	return list
}

// lastOf returns the last position of an item that has slack.
func (p *prolonger) lastOf(x *pack.Item, i int) int {
	return max(x.Last, min(p.until[i][p.slack], x.First+p.positions-1))
}

// prolong prolongs as many items of a list as it can, in their order: all of them, or those of each half.
func (p *prolonger) prolong(list []int) {
	if p.tries++; p.tries > p.mostTries() || p.try(list) || len(list) == 1 {
		return
	}
	p.prolong(list[:len(list)/2])
	p.prolong(list[len(list)/2:])
}

// try prolongs all items of a list, and reports whether they fit.
func (p *prolonger) try(list []int) bool {
	x := placement{items: slices.Clone(p.latest.items)}
	for _, i := range list {
		x.items[i].Last = p.lastOf(&x.items[i], i)
	}
	if x.live = pack.LiveCircle(x.items, p.positions); x.live > p.room {
		return false
	}
	if x.extent = pack.CircleWithin(x.items, p.positions, p.room); x.extent > p.room {
		return false
	}
	p.placement = x
	if !p.fits() {
		return false
	}
	p.latest = x
	return true
}
