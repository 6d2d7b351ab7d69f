package pofo

// opportunist: keeps the link busy. A layer is run with F^all, and its input and its saved set are offloaded. The layers behind it save
// nothing until both transfers have ended; then the next group begins in the same way. As soon as everything that is left fits in memory
// without recomputation, it is run like that. In the backward phase the layers between two F^all are run again from the saved set by the
// best rematerialization.
//
// Paper: A. Shilova, thesis, section 4.3. Groups end when the transfers would end without waits for memory.
//
// Complexity: O(n^3·N^2) for the rematerializations of the groups.

import (
	"context"
	"math"

	"plimsoll/planner/improve"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

func solveOpportunist(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	k, err := newCosts(p)
	if err != nil {
		return nil, err
	}
	o := opportunist{costs: k, Problem: p}
	o.divide()
	smallest := o.smallest(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.Memory < smallest {
		o.Memory = smallest
		seq, err := o.plan(ctx)
		if err != nil {
			return nil, err
		}
		return nil, infeasible("opportunist", p, smallest, seq)
	}
	return o.plan(ctx)
}

type opportunist struct {
	*costs
	strategy.Problem
	groups []group // as if nothing ever fitted
}

// group is layers first..last, of which the first is run with F^all. The loss is a group of its own.
type group struct{ first, last int }

// divide finds the groups: the transfers of a group begin when the layer before has ended.
func (o *opportunist) divide() {
	for s := 1; s < o.n; {
		now := o.all[s]
		busy := max(o.inputOf(s), now) + o.saved[s]
		t := s
		for t+1 < o.n && now < busy {
			t++
			now += o.again[t] - o.again[t-1]
		}
		o.groups = append(o.groups, group{s, t})
		s = t + 1
	}
	o.groups = append(o.groups, group{o.n, o.n})
}

// inputOf returns the bytes of the input of a group: the group before ended with a plain activation unless it is one
// layer long.
func (o *opportunist) inputOf(first int) float64 {
	g := len(o.groups)
	for g > 0 && o.groups[g-1].first >= first {
		g--
	}
	return o.input(first, g > 0 && o.groups[g-1].first == first-1)
}

// smallest returns the smallest limit: that at which the first groups are offloaded and the rest fits, for the best
// choice of the rest.
func (o *opportunist) smallest(ctx context.Context) int64 {
	segment := o.newLeast(ctx).segment
	smallest, before := math.Inf(1), 0.0
	for _, g := range o.groups {
		smallest = min(smallest, max(before, o.rest(g.first)))
		before = max(before, o.need(g, segment))
	}
	return int64(math.Ceil(smallest))
}

// rest returns the bytes that the layers from s on need without recomputation, their input included.
func (o *opportunist) rest(s int) float64 {
	stored, most := o.inputOf(s), 0.0
	for l := s; l <= o.n; l++ {
		most = max(most, stored+o.needAll[l], stored+o.needBack[l])
		stored += o.saved[l]
	}
	return most
}

// need returns the bytes of a group when everything else is away.
func (o *opportunist) need(g group, segment func(s, t int) float64) float64 {
	in := o.inputOf(g.first)
	need := in + max(o.needAll[g.first], o.needBack[g.first])
	for l := g.first + 1; l <= g.last; l++ {
		here := o.needForward(g.first+1, l)
		if l == g.first+1 {
			here += o.saved[g.first]
		}
		need = max(need, here)
	}
	if g.last > g.first {
		need = max(need, o.saved[g.first]+segment(g.first+1, g.last))
	}
	return need
}

// plan returns the sequence within a limit that is large enough.
func (o *opportunist) plan(ctx context.Context) (schedule.Sequence, error) {
	table := &segments{costs: o.costs, limit: float64(o.Memory), excess: math.Inf(1), reach: o.reach(), cells: DefaultCells}
	if err := table.solve(ctx); err != nil {
		return nil, err
	}
	end := 0
	for o.rest(o.groups[end].first) > float64(o.Memory) {
		end++
	}
	d := o.forwards(end)
	for i := end - 1; i >= 0; i-- {
		o.backwards(&d, i, table)
	}
	c, err := newContest(o.Problem, 1)
	if err != nil {
		return nil, err
	}
	c.place(d.compute, d.gaps, d.loss+1)
	return c.winner("opportunist")
}

// reach returns, for each layer, the last one of its group.
func (o *opportunist) reach() []int {
	last := make([]int, o.n+1)
	for _, g := range o.groups {
		for l := g.first; l <= g.last; l++ {
			last[l] = g.last
		}
	}
	return last
}

// forwards begins the sequence: the groups before end, and everything behind them with its backwards. The gaps get
// their ends later.
func (o *opportunist) forwards(end int) draft {
	var d draft
	for _, g := range o.groups[:end] {
		d.gaps = append(d.gaps, improve.Gap{Layer: g.first, From: len(d.compute)})
		d.compute = append(d.compute, all(g.first))
		if g.last > g.first {
			d.gaps = append(d.gaps, improve.Gap{Layer: g.first + 1, From: len(d.compute)})
			d.compute = run(d.compute, g.first+1, g.last)
		}
	}
	first := o.groups[end].first
	for l := first; l <= o.n; l++ {
		d.compute = append(d.compute, all(l))
	}
	d.loss = len(d.compute) - 1
	for l := o.n; l >= first; l-- {
		d.compute = append(d.compute, backward(l))
	}
	return d
}

// backwards appends the backward phase of group i.
func (o *opportunist) backwards(d *draft, i int, table *segments) {
	g := o.groups[i]
	if g.last > g.first {
		_, best := table.best(g.first+1, g.last, float64(o.Memory)-o.saved[g.first], &queue{})
		d.close(g.first + 1)
		d.compute = table.build(d.compute, g.first+1, g.last, best)
	}
	d.close(g.first)
	d.compute = append(d.compute, backward(g.first))
}

// close ends the gap of a layer's input before the next op.
func (d *draft) close(layer int) {
	for i := range d.gaps {
		if d.gaps[i].Layer == layer {
			d.gaps[i].To = len(d.compute)
		}
	}
}
