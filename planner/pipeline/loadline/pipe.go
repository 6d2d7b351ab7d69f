package loadline

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// pipe is stages whose ops are fixed, and the boundaries between them, in the order of the chain: the virtual stages of 1F1B*.
type pipe struct {
	c      *cutter
	stages []pipeline.Stage
	v      []pipeline.Virtual
	costs  []*pipeline.StageCost // of each stage with ops
}

// delays returns for every virtual stage the time from the start of its forward to the end of its backward, when a minibatch
// enters each period (thesis, Algorithm 6). The result is false if there is no such schedule.
func (q *pipe) delays(period float64) ([]float64, bool) {
	all, delay := make([]float64, len(q.v)), 0.0
	for x := len(q.v) - 1; x >= 0; x-- {
		var ok bool
		if delay, ok = periodic.Around(delay, q.v[x].U(), period); !ok {
			return nil, false
		}
		all[x] = delay
	}
	return all, true
}

// fits reports whether the stages fit with this period.
func (q *pipe) fits(period float64) bool {
	delays, ok := q.delays(period)
	if !ok {
		return false
	}
	for x, v := range q.v {
		if !v.Boundary && !q.room(x, delays[x], period, q.moves(v.Stage)) {
			return false
		}
	}
	return true
}

// room reports whether the stage of a virtual one fits when it makes the first n of its moves.
func (q *pipe) room(x int, delay, period float64, n int) bool {
	v, g := q.v[x], periodic.Live(delay, period)
	limit := q.c.Platform.Memory[q.stages[v.Stage].Devices[0]]
	if n == 0 {
		return q.bytes(v.Stage, g) <= limit
	}
	st := q.stages[v.Stage]
	f, b := q.turns(x, delay, period)
	held, ok := q.costs[v.Stage].Held(q.c.Platform, pipeline.RhythmOf(f, b, period), n)
	return ok && q.c.static(st.First, st.Last, g)+held <= limit
}

// turns returns when a virtual stage runs minibatch 0: its forward and its backward, folded into a period.
func (q *pipe) turns(x int, delay, period float64) (there, back pipeline.Task) {
	v, forward, backward := q.v[x], pipeline.F, pipeline.B
	d := q.stages[v.Stage].Devices[0]
	to := d
	if v.Boundary {
		forward, backward, to = pipeline.CF, pipeline.CB, q.stages[v.Stage+1].Devices[0]
	}
	start := 0.0
	for _, before := range q.v[:x] {
		start += before.Forward
	}
	return task(forward, v.Stage, d, start, period), task(backward, v.Stage, to, start+delay-v.Backward, period)
}

// bytes returns the bytes of a stage without transfers with g live minibatches.
func (q *pipe) bytes(stage, g int) int64 {
	st := q.stages[stage]
	if len(st.Ops) == 0 {
		return q.c.need.Bytes(stage, st.First, st.Last, g)
	}
	return q.c.static(st.First, st.Last, g) + q.costs[stage].Bytes(g)
}

// moves returns how many activations a stage offloads.
func (q *pipe) moves(stage int) int {
	if q.costs[stage] == nil {
		return 0
	}
	return q.costs[stage].Moves()
}

// smallest returns the smallest period, at most known, at which the stages fit. It is one of the sums of consecutive virtual
// stages, as the numbers of live minibatches change at no others.
func (q *pipe) smallest(known float64) float64 {
	all := []float64{known}
	for y := range q.v {
		sum := 0.0
		for x := y; x >= 0; x-- {
			if sum += q.v[x].U(); sum > 0 && sum < known {
				all = append(all, sum)
			}
		}
	}
	slices.Sort(all)
	at, _ := slices.BinarySearchFunc(all, true, func(period float64, _ bool) int {
		if period == known || q.fits(period) {
			return 0
		}
		return -1
	})
	return all[at]
}

// plan folds the schedule into a pattern of one period.
func (q *pipe) plan(period float64) *pipeline.Plan {
	r := q.c.Request
	p := &pipeline.Plan{Stages: q.stages, Versions: r.Versions, Copies: pipeline.Copies{WeightCopies: r.WeightCopies, Accounting: r.Accounting}, Period: period}
	if p.Versions == "" {
		p.Versions = pipeline.DoubleBuffered
	}
	delays, ok := q.delays(period)
	if !ok {
		panic("BUG: a period that fits has no schedule")
	}
	for x := range q.v {
		there, back := q.turns(x, delays[x], period)
		p.Tasks = append(p.Tasks, there, back)
	}
	first := slices.IndexFunc(p.Tasks, func(t pipeline.Task) bool { return t.Kind == pipeline.B })
	zero := p.Tasks[first].Shift
	for i := range p.Tasks {
		p.Tasks[i].Shift -= zero
	}
	slices.SortStableFunc(p.Tasks, func(a, b pipeline.Task) int { return cmp.Compare(a.Stage, b.Stage) })
	return p
}

// task puts what runs at an absolute time for minibatch 0 into the period.
func task(kind pipeline.Kind, stage, device int, at, period float64) pipeline.Task {
	turn := math.Floor(at / period)
	start := at - turn*period
	if start >= period*(1-1e-12) { // rounding: it starts with the next period
		turn, start = turn+1, 0
	}
	return pipeline.Task{Kind: kind, Stage: stage, Device: device, Start: max(start, 0), Shift: -int(turn)}
}

// pipe measures stages.
func (c *cutter) pipe(stages []pipeline.Stage) *pipe {
	q := &pipe{c: c, stages: stages, v: c.costs.Virtuals(stages, c.Platform), costs: make([]*pipeline.StageCost, len(stages))}
	for i, v := range q.v {
		if st := stages[v.Stage]; !v.Boundary && len(st.Ops) > 0 {
			cost := mustMeasure(c.Chain, st)
			q.v[i].Forward, q.v[i].Backward, q.costs[v.Stage] = cost.Forward, cost.Backward, cost
		}
	}
	return q
}

// trim lets each stage offload no more than it must with a period.
func (q *pipe) trim(period float64) {
	delays, _ := q.delays(period)
	for x, v := range q.v {
		if v.Boundary || q.moves(v.Stage) == 0 {
			continue
		}
		n := 1 + sort.Search(q.moves(v.Stage)-1, func(n int) bool { return q.room(x, delays[x], period, n+1) })
		st := &q.stages[v.Stage]
		st.Ops = offloading(pipeline.Stage{First: st.First, Last: st.Last, Ops: staying(st.Ops)}, n)
		q.costs[v.Stage] = mustMeasure(q.c.Chain, *st)
	}
}
