package periodic

// list: 1-periodic schedules of any allocation, contiguous or not.
//
// It stands in for the integer program of the thesis, section 7.2, where that takes too long or cannot be solved. Like
// 1F1B*, it places tasks from the loss outwards, so that few minibatches are live. The forward of a stage (or its
// communication) goes as late as possible before its successor, and its backward as early as possible. A device with
// several stages has gaps between tasks that are placed already; a forward may go before, a backward behind any of
// them. A beam of partial schedules is kept: half those with the shortest delay, half those with the most memory to
// spare. The period is the smallest that works among the sums of consecutive virtual stages, then bisected. With one
// stage a device the result equals that of 1F1B*.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

const (
	beamWidth    = 24
	listHalvings = 18
)

func solveList(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	return List(ctx, "list", r)
}

// List returns the best plan found for the request's stages, several of which may be on one device, in the name of a
// strategy. Errors: *InfeasibleError when the stages do not fit with one live minibatch each, which is when no schedule
// at all has them fit; ErrStages, ErrOptions, the context's.
func List(ctx context.Context, strategy string, r pipeline.Request) (*pipeline.Plan, error) {
	p, err := newProblem(strategy, r)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.single(), p.plain()); err != nil {
		return nil, err
	}
	l := newLister(p)
	if err := l.infeasible(); err != nil {
		return nil, err
	}
	best, err := l.search(ctx)
	if err != nil {
		return nil, err
	}
	return pipeline.Finish(strategy, r, l.plan(best))
}

// step is a virtual stage with the resources of its forward and its backward: one, or two where links are duplex.
type step struct {
	pipeline.Virtual
	there, back int
}

// lister schedules one allocation.
type lister struct {
	*problem
	steps     []step
	resources int
	on        [][]int // the stages of each device
	buffers   []int64 // of each device
}

func newLister(p *problem) *lister {
	l := &lister{problem: p, on: make([][]int, p.Platform.Devices), buffers: make([]int64, p.Platform.Devices), resources: p.Platform.Devices}
	links := map[[2]int]int{}
	link := func(x, y int) int {
		if x > y && !p.Platform.Duplex {
			x, y = y, x
		}
		if _, ok := links[[2]int{x, y}]; !ok {
			links[[2]int{x, y}] = l.resources
			l.resources++
		}
		return links[[2]int{x, y}]
	}
	for s, st := range p.stages {
		d := st.Devices[0]
		l.on[d] = append(l.on[d], s)
		if s > 0 && p.stages[s-1].Devices[0] != d {
			bytes := p.need.Boundary(st.First - 1)
			l.buffers[d] += bytes
			l.buffers[p.stages[s-1].Devices[0]] += bytes
		}
	}
	for _, v := range p.costs.Virtuals(p.stages, p.Platform) {
		x := p.stages[v.Stage].Devices[0]
		if !v.Boundary {
			l.steps = append(l.steps, step{v, x, x})
			continue
		}
		y := p.stages[v.Stage+1].Devices[0]
		if x != y {
			l.steps = append(l.steps, step{v, link(x, y), link(y, x)})
		}
	}
	return l
}

// infeasible returns an error when a device cannot hold its stages with one live minibatch each. Every schedule has all of
// them live at once, when the minibatch reaches the loss; running one minibatch at a time needs no more.
func (l *lister) infeasible() error {
	var e *pipeline.InfeasibleError
	for d, stages := range l.on {
		need := l.buffers[d]
		for _, s := range stages {
			need += l.static(s, 1) + l.held(s)
		}
		if e == nil && need > l.Platform.Memory[d] {
			e = &pipeline.InfeasibleError{Strategy: l.strategy, Reason: fmt.Sprintf(
				"device %d needs %d bytes for stages %v with one live minibatch, it has %d", d, need, stages, l.Platform.Memory[d])}
		}
	}
	if e == nil {
		return nil
	}
	for d, stages := range l.on {
		need := l.buffers[d]
		for _, s := range stages {
			need += l.static(s, 1) + l.held(s)
		}
		e.Smallest = max(e.Smallest, need)
	}
	return e
}

func (l *lister) held(s int) int64 { return l.need.Held(l.stages[s].First, l.stages[s].Last) }

// static returns the weights of a stage, all copies.
func (l *lister) static(s, live int) int64 {
	i, j := l.stages[s].First, l.stages[s].Last
	return l.need.costs.Memory(i, j, 0, l.need.Copies(s, live), l.need.held) - l.need.costs.Buffers(i, j)
}

// search returns the schedule with the smallest period found.
func (l *lister) search(ctx context.Context) (*board, error) {
	all := l.periods()
	var best *board
	low, high := 0, len(all)-1
	for low < high {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		mid := (low + high) / 2
		if b := l.schedule(all[mid]); b != nil {
			best, high = b, mid
		} else {
			low = mid + 1
		}
	}
	if best == nil {
		if best = l.schedule(all[high]); best == nil {
			return nil, fmt.Errorf("BUG: one minibatch at a time does not fit")
		}
	}
	if high == 0 {
		return best, nil
	}
	for low, high := all[high-1], all[high]; high-low > 1e-9*high; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		mid := (low + high) / 2
		if b := l.schedule(mid); b != nil {
			best, high = b, mid
		} else {
			low = mid
		}
		if high-low < math.Ldexp(all[len(all)-1], -listHalvings) {
			break
		}
	}
	return best, nil
}

// periods returns the sums of consecutive virtual stages from the largest load of a resource on; the last is the time of a
// minibatch alone.
func (l *lister) periods() []float64 {
	loads := make([]float64, l.resources)
	for _, s := range l.steps {
		loads[s.there] += s.Forward
		loads[s.back] += s.Backward
	}
	load := slices.Max(loads)
	if load == 0 {
		return []float64{Instant}
	}
	all := []float64{load}
	for y := range l.steps {
		sum := 0.0
		for x := y; x >= 0; x-- {
			if sum += l.steps[x].U(); sum > load {
				all = append(all, sum)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// board is a partial schedule: the steps from next on are placed.
type board struct {
	period      float64
	busy        [][]span  // of each resource
	there, back []float64 // absolute starts of the steps, of one minibatch
	delay       float64   // from the start of the first placed forward to the end of its backward
	full        float64   // the largest share of a device's memory that is taken
}

// span is when a resource is busy, modulo the period.
type span struct{ at, length float64 }

// schedule returns a schedule of a period, nil when none was found.
func (l *lister) schedule(period float64) *board {
	beam := []*board{l.empty(period)}
	for x := len(l.steps) - 1; x >= 0; x-- {
		var next []*board
		for _, b := range beam {
			next = l.extend(next, b, x)
		}
		beam = narrow(next)
	}
	if len(beam) == 0 {
		return l.packed(period)
	}
	return beam[0]
}

// packed returns the schedule in which what each resource does in a period leaves no hole but one: each task goes right
// before or right behind those that are placed. It exists whenever the loads allow the period, but its delays are long;
// nil when it exceeds the memory.
func (l *lister) packed(period float64) *board {
	b := l.empty(period)
	end, begin := 0.0, 0.0
	arcs := make([]arc, l.resources)
	for x := len(l.steps) - 1; x >= 0; x-- {
		s := l.steps[x]
		there, back := &arcs[s.there], &arcs[s.back]
		b.there[x] = b.join(there, end-s.Forward, -1, s.Forward)
		b.back[x] = b.join(back, begin, 1, s.Backward)
		if !fits(there.length, period) || !fits(back.length, period) {
			return nil
		}
		end, begin = b.there[x], b.back[x]+s.Backward
	}
	for d, limit := range l.Platform.Memory {
		if l.bytes(b, d, 0) > limit {
			return nil
		}
	}
	return b
}

// arc is when a resource is busy without a hole, modulo the period.
type arc struct {
	span
	used bool
}

// join adds a task to the arc of a resource, at one of its ends. The task starts as near as possible to the wanted
// time, not after it (side -1) or not before it (side 1).
func (b *board) join(a *arc, wanted, side, length float64) (start float64) {
	if !a.used {
		*a = arc{span{wanted, length}, true}
		return wanted
	}
	ahead, behind := b.toward(wanted, a.at-length, side), b.toward(wanted, a.at+a.length, side)
	a.length += length
	if (ahead-behind)*side < 0 {
		a.at -= length
		return ahead
	}
	return behind
}

// toward returns the time nearest to the one wanted, on its side, that is whole periods from another one.
func (b *board) toward(wanted, at, side float64) float64 {
	return wanted + side*b.modulo(side*(at-wanted))
}

// empty returns a board without tasks.
func (l *lister) empty(period float64) *board {
	return &board{
		period: period, busy: make([][]span, l.resources),
		there: make([]float64, len(l.steps)), back: make([]float64, len(l.steps)),
	}
}

// narrow keeps the best boards: by delay, and by memory.
func narrow(all []*board) []*board {
	byDelay := func(a, b *board) int { return cmp.Or(cmp.Compare(a.delay, b.delay), cmp.Compare(a.full, b.full)) }
	slices.SortStableFunc(all, byDelay)
	if len(all) <= beamWidth {
		return all
	}
	rest := slices.Clone(all[beamWidth/2:])
	slices.SortStableFunc(rest, func(a, b *board) int { return cmp.Or(cmp.Compare(a.full, b.full), cmp.Compare(a.delay, b.delay)) })
	kept := append(all[:beamWidth/2:beamWidth/2], rest[:beamWidth/2]...)
	slices.SortStableFunc(kept, byDelay)
	return kept
}

// extend adds to a list all ways to place step x on a board that stay within the memory.
func (l *lister) extend(list []*board, b *board, x int) []*board {
	s := l.steps[x]
	end, begin := 0.0, 0.0 // the forward ends before, the backward begins after
	if x+1 < len(l.steps) {
		end, begin = b.there[x+1], b.back[x+1]+l.steps[x+1].Backward
	}
	for _, at := range b.places(s, end, begin) {
		n := *b
		n.there, n.back = slices.Clone(b.there), slices.Clone(b.back)
		n.there[x], n.back[x] = at[0], at[1]
		n.busy = slices.Clone(b.busy)
		n.take(s.there, at[0], s.Forward)
		n.take(s.back, at[1], s.Backward)
		n.delay = at[1] + s.Backward - at[0]
		if !s.Boundary {
			d := l.stages[s.Stage].Devices[0]
			need := l.bytes(&n, d, x)
			if need > l.Platform.Memory[d] {
				continue
			}
			n.full = max(n.full, float64(need)/float64(l.Platform.Memory[d]))
		}
		list = append(list, &n)
	}
	return list
}

// take marks a resource busy.
func (b *board) take(resource int, at, length float64) {
	b.busy[resource] = append(slices.Clip(b.busy[resource]), span{b.modulo(at), length})
}

// modulo returns the rest of a time after whole periods; just below a period counts as 0.
func (b *board) modulo(t float64) float64 {
	m := math.Mod(t, b.period)
	if m < 0 {
		m += b.period
	}
	if m > b.period*(1-slack*16) {
		return 0
	}
	return m
}

// places returns where the forward and the backward of a step may start, each next to its neighbour or to a task that is
// there already.
func (b *board) places(s step, end, begin float64) [][2]float64 {
	var all [][2]float64
	put := func(f, g float64) {
		for _, a := range all {
			if near := b.period * slack * 16; math.Abs(a[0]-f) < near && math.Abs(a[1]-g) < near {
				return
			}
		}
		all = append(all, [2]float64{f, g})
	}
	for _, f := range b.before(b.busy[s.there], end, s.Forward) {
		for _, g := range b.after(b.with(s.there, s.back, f, s.Forward), begin, s.Backward) {
			put(f, g)
		}
	}
	if s.there == s.back {
		for _, g := range b.after(b.busy[s.back], begin, s.Backward) {
			for _, f := range b.before(b.with(s.there, s.back, g, s.Backward), end, s.Forward) {
				put(f, g)
			}
		}
	}
	return all
}

// with returns when the second resource is busy once the first is taken too.
func (b *board) with(first, second int, at, length float64) []span {
	if first != second {
		return b.busy[second]
	}
	return append(slices.Clip(b.busy[second]), span{b.modulo(at), length})
}

// before returns starts at which a resource is free for a length, up to an end or the start of a busy span.
func (b *board) before(busy []span, end, length float64) []float64 {
	var starts []float64
	if b.free(busy, end-length, length) {
		starts = append(starts, end-length)
	}
	for _, s := range busy {
		if at := end - b.modulo(end-s.at) - length; b.free(busy, at, length) {
			starts = append(starts, at)
		}
	}
	return starts
}

// after returns starts at which a resource is free for a length, from a begin or the end of a busy span on.
func (b *board) after(busy []span, begin, length float64) []float64 {
	var starts []float64
	if b.free(busy, begin, length) {
		starts = append(starts, begin)
	}
	for _, s := range busy {
		if at := begin + b.modulo(s.at+s.length-begin); b.free(busy, at, length) {
			starts = append(starts, at)
		}
	}
	return starts
}

// free reports whether a task can run at a time: tasks of no duration may touch others but not interrupt them.
func (b *board) free(busy []span, at, length float64) bool {
	near := b.period * slack * 16
	if length > b.period+near {
		return false
	}
	for _, s := range busy {
		later, earlier := b.modulo(at-s.at), b.modulo(s.at-at)
		switch {
		case length == 0 && s.length == 0:
		case length == 0 && later > near && later < s.length-near, s.length == 0 && earlier > near && earlier < length-near:
			return false
		case length > 0 && s.length > 0 && (later < s.length-near || earlier < length-near):
			return false
		}
	}
	return true
}

// hold is bytes from one time to another, of one minibatch.
type hold struct {
	from, to float64
	bytes    int64
}

// bytes returns the memory of a device, as far as steps from x on are placed: what Check will say.
func (l *lister) bytes(b *board, d, x int) int64 {
	total := l.buffers[d]
	var holds []hold
	for y, s := range l.steps {
		st := s.Stage
		if s.Boundary || l.stages[st].Devices[0] != d {
			continue
		}
		if y < x {
			total += l.static(st, 1)
			continue
		}
		h := hold{b.there[y], b.back[y] + s.Backward, l.held(st)}
		holds = append(holds, h)
		total += l.static(st, max(1, turns(h.to-h.from, b.period)))
		if st+1 < len(l.stages) && l.stages[st+1].Devices[0] == d {
			last, inner := l.stages[st].Last, l.steps[y+1]
			holds = append(holds, hold{b.there[y] + s.Forward, b.there[y+1], l.Chain.Activation(last)},
				hold{b.back[y+1] + inner.Backward, b.back[y], l.Chain.Gradient(last)})
		}
	}
	return total + b.peak(holds)
}

// peak returns the largest sum of holds that repeat with the period. It is reached where one begins.
func (b *board) peak(holds []hold) (top int64) {
	for _, at := range holds {
		sum := int64(0)
		for _, h := range holds {
			if h.to-h.from > b.period*slack*16 || h == at {
				begun := math.Floor((at.from-h.from)/b.period + slack*16)
				ended := math.Floor((at.from-h.to)/b.period + slack*16)
				sum += int64(begun-ended) * h.bytes
			}
		}
		top = max(top, sum)
	}
	return top
}

// plan folds a board into a pattern.
func (l *lister) plan(b *board) *pipeline.Plan {
	p := l.need.Plan(l.stages)
	p.Period = b.period
	f := NewFolder(p)
	for x, s := range l.steps {
		there, back, sender := pipeline.F, pipeline.B, l.stages[s.Stage].Devices[0]
		if s.Boundary {
			there, back, sender = pipeline.CF, pipeline.CB, l.stages[s.Stage+1].Devices[0]
		}
		f.Add(there, s.Stage, l.stages[s.Stage].Devices[0], b.there[x], 0)
		f.Add(back, s.Stage, sender, b.back[x], 0)
	}
	f.Finish()
	return p
}
