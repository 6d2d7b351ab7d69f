package partition

// madpipe: one device may have several stages.
//
// The MadPipe paper, section 4, and the thesis, chapter 7. Phase 1 chooses an allocation in which every device but one, the special one,
// has one stage. For a target period T, the memory of a stage follows from the delay V of the stages after it, as for contiguous. On the
// special device, a stage counts g-1 live minibatches, the least possible, or g, which is always enough. The paper minimizes the largest of
// T and the loads by bisection (Algorithm 8). A larger target never needs more memory, so it is enough to ask whether all loads can be
// within T. The paper rounds t_P, m_P and V to 101, 11 and 51 values; labels keep them exactly here. If t_P and m_P of several labels fall
// into the same cell of such a grid, the label with the smallest V stays.
// Phase 2 schedules the allocations found on the way (both counts of memory) with the list scheduler, which stands in for the integer
// program of the thesis, section 7.2. The best contiguous plan is one of the candidates.
// On platforms whose devices or links differ, phase 1 plans for the smallest memory and the slowest link.
// Time: O(P n² · cells) for a period at worst; labels are few in practice.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

const (
	timeCells     = 100 // of t_P, as in the paper
	memoryCells   = 10  // of m_P
	targets       = 10  // periods that phase 1 tries for each count of memory
	madCandidates = 3   // allocations that phase 2 schedules for each count of memory
)

func solveMadPipe(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	return MadPipe(ctx, r, math.Inf(1))
}

// MadPipe returns madpipe's plan if it has one whose period, seconds, is below another one; its plan or none where that has no plan so short.
// Phase 1 then begins with that period: where no allocation has it, nothing more is tried. Errors: those of the strategy.
func MadPipe(ctx context.Context, r pipeline.Request, below float64) (*pipeline.Plan, error) {
	const name = "madpipe"
	a, err := newAllocator(ctx, r)
	if err != nil {
		return nil, err
	}
	c, err := newCutter(ctx, r)
	if err != nil {
		return nil, err
	}
	stages, err := c.best(ctx)
	if err != nil {
		return nil, err
	}
	var best *pipeline.Plan
	if stages != nil {
		r.Stages = stages
		if best, err = periodic.Star(ctx, name, r); err != nil {
			return nil, err
		}
	}
	for _, m := range r.Platform.Memory {
		a.limit = min(a.limit, m)
	}
	a.below = below
	smallest := a.smallest(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if smallest > a.limit {
		if best != nil {
			return best, nil
		}
		return nil, a.infeasible(name, c.tooLarge(), smallest)
	}
	return a.search(ctx, r, best)
}

// search runs both phases, given the best contiguous plan, if there is one.
func (a *allocator) search(ctx context.Context, r pipeline.Request, best *pipeline.Plan) (*pipeline.Plan, error) {
	high := min(a.alone(), a.below)
	if best != nil {
		high = min(high, best.Period)
	}
	found, err := a.both(ctx, high)
	if err != nil {
		return nil, err
	}
	if best == nil {
		found = append(found, a.frugal())
	}
	for _, l := range found {
		if best, err = a.better(ctx, r, l, best); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// both returns the targets of both counts of memory, those of the smaller one first. They are found at the same time.
func (a *allocator) both(ctx context.Context, high float64) ([]*label, error) {
	var found [2][]*label
	var err [2]error
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			one := *a
			one.spare = 1 - i
			found[i], err[i] = one.targets(ctx, high)
		})
	}
	all.Wait()
	return slices.Concat(found[:]...), cmp.Or(err[0], err[1])
}

// better schedules an allocation, and returns the better plan.
func (a *allocator) better(ctx context.Context, r pipeline.Request, l *label, best *pipeline.Plan) (*pipeline.Plan, error) {
	r.Stages = a.stages(l)
	if best != nil && a.load(r.Stages) >= best.Period*(1-1e-9) {
		return best, nil
	}
	plan, err := periodic.List(ctx, "madpipe", r)
	if errors.Is(err, pipeline.ErrInfeasible) { // phase 1 counted too little for the special device
		return best, nil
	}
	if err != nil || best != nil && best.Period <= plan.Period {
		return best, err
	}
	return plan, nil
}

// allocator is phase 1.
type allocator struct {
	pipeline.Request
	costs *pipeline.Costs
	need  *periodic.Footprint
	limit int64     // bytes of each device
	beta  float64   // of each link
	links []float64 // C(l), the load of the boundary after each layer
	spare int       // live minibatches of a stage that the special device does not count: 1 or 0
	below float64   // plans with a longer period are of no use
}

func newAllocator(ctx context.Context, r pipeline.Request) (*allocator, error) {
	costs, err := newCosts(ctx, r)
	if err != nil {
		return nil, err
	}
	a := &allocator{Request: r, costs: costs, limit: pipeline.NoLimit, beta: slowest(r.Platform)}
	for d := range r.Platform.Devices {
		for e := d + 1; e < r.Platform.Devices; e++ {
			if r.Platform.Beta(d, e) == 0 {
				return nil, fmt.Errorf("%w: devices %d and %d have no link: madpipe needs one between every two", pipeline.ErrPlatform, d, e)
			}
		}
	}
	for l := range costs.Len() {
		a.links = append(a.links, costs.C(l, a.beta))
	}
	a.need, err = periodic.NewFootprint(costs, r, 0)
	return a, err
}

// alone returns the time of a minibatch that passes all layers and all boundaries alone.
func (a *allocator) alone() float64 {
	total := a.costs.U(1, a.costs.Len())
	for l := 1; l < a.costs.Len(); l++ {
		total += a.links[l]
	}
	return max(total, periodic.Instant)
}

// label is an allocation of the layers from first on.
type label struct {
	first   int
	normal  int     // devices with one stage
	special bool    // the stage that begins with first is on the special device
	time    float64 // t_P, the load of the special device
	memory  int64   // m_P, its memory
	delay   float64 // V, that layers before first have to wait for
	after   *label  // the allocation without that stage
}

// targets returns the allocations found for periods below high, the one for the smallest period first.
func (a *allocator) targets(ctx context.Context, high float64) ([]*label, error) {
	n := a.costs.Len()
	low := a.costs.U(1, n) / float64(a.Platform.Devices)
	for l := 1; l <= n; l++ {
		low = max(low, a.costs.U(l, l))
	}
	var found []*label
	if high == a.below {
		l := a.allocate(ctx, high)
		if l == nil {
			return nil, nil
		}
		found = append(found, l)
	}
	for target, i := low, 0; i < targets && low < high*(1-1e-6); i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if l := a.allocate(ctx, target); l != nil {
			found = append(found, l)
			high = target
		} else {
			low = target
		}
		target = (low + high) / 2
	}
	slices.Reverse(found)
	return found[:min(len(found), madCandidates)], nil
}

// allocate returns an allocation whose loads are within a period and whose memory, as far as it is known, fits; nil when
// none was found. Of several, the one with the shortest delay at the first layer.
func (a *allocator) allocate(ctx context.Context, period float64) *label {
	n, normal := a.costs.Len(), a.Platform.Devices-1
	t := &table{allocator: a, period: period, at: make([]bucket, (n+1)*(normal+1))}
	t.extend(&label{first: n + 1})
	for first := n; first > 1; first-- {
		for used := range normal + 1 {
			for _, l := range t.bucket(first, used).labels {
				t.extend(l)
			}
			if t.bucket(first, used).cells = nil; ctx.Err() != nil {
				return nil
			}
		}
	}
	var best *label
	for used := range normal + 1 {
		for _, l := range t.bucket(1, used).labels {
			if best == nil || l.delay < best.delay {
				best = l
			}
		}
	}
	return best
}

// table is the dynamic program for one period.
type table struct {
	*allocator
	period float64
	at     []bucket
	room   []label // where new labels come from
}

// bucket is the labels with the same first layer and normal devices, in the order in which their cells were first met.
type bucket struct {
	cells  []*label
	labels []*label
}

func (t *table) bucket(first, normal int) *bucket { return &t.at[first*t.Platform.Devices+normal] }

// hopeful reports whether the layers before first can fit into the period, with so many normal devices used and this load of the
// special one.
func (t *table) hopeful(first, normal int, time float64) bool {
	return first == 1 || t.costs.U(1, first-1)+time <= float64(t.Platform.Devices-normal)*t.period*(1+1e-12)
}

// put keeps a label unless one in its cell is as good.
func (t *table) put(l label) {
	s, cell := t.bucket(l.first, l.normal), t.cell(&l)
	if s.cells == nil {
		s.cells = make([]*label, 2*(timeCells+2)*(memoryCells+2))
	}
	old := s.cells[cell]
	if old == nil {
		if len(t.room) == 0 {
			t.room = make([]label, 1024)
		}
		old, t.room = &t.room[0], t.room[1:]
		s.cells[cell], s.labels = old, append(s.labels, old)
	} else if !l.better(old) {
		return
	}
	*old = l // nothing refers to it before its bucket is extended
}

// better reports whether a label is to be kept instead of another one in its cell.
func (l *label) better(old *label) bool {
	switch {
	case l.delay != old.delay:
		return l.delay < old.delay
	case l.time != old.time:
		return l.time < old.time
	}
	return l.memory < old.memory
}

// cell returns the cell of the grid of t_P and m_P that a label falls into. A special device without stages has its own.
func (t *table) cell(l *label) int {
	cell := int(l.time / t.period * timeCells * (1 - 1e-9))
	if l.time > 0 {
		cell++
	}
	cell = cell*(memoryCells+2) + int(float64(l.memory)/float64(t.limit)*memoryCells)
	if l.special {
		return 2*cell + 1
	}
	return 2 * cell
}

// extend puts all stages before a label that keep the loads and the memory.
func (t *table) extend(l *label) {
	last := l.first - 1
	for first := last; first >= 1; first-- {
		load := t.costs.U(first, last)
		delay, ok := periodic.Around(l.delay, load, t.period)
		if !ok {
			return
		}
		time := l.time + load
		normal := l.normal+1 < t.Platform.Devices && t.hopeful(first, l.normal+1, l.time)
		special := !l.special && time <= t.period*(1+1e-12) && t.hopeful(first, l.normal, time) // two stages in a row there are one
		if !normal && !special {
			continue
		}
		need, held := t.stage(first, last, periodic.Live(delay, t.period))
		if delay, ok = t.boundary(delay, first-1, t.period); !ok {
			continue
		}
		if normal && need <= t.limit {
			t.put(label{first: first, normal: l.normal + 1, time: l.time, memory: l.memory, delay: delay, after: l})
		}
		if memory := l.memory + need - int64(t.spare)*held; special && memory <= t.limit {
			t.put(label{first: first, normal: l.normal, special: true, time: time, memory: memory, delay: delay, after: l})
		}
	}
}

// stage returns the bytes that a stage needs on a device of its own, and the bytes of each live minibatch.
func (a *allocator) stage(first, last, live int) (need, held int64) {
	return a.need.Bytes(0, first, last, live), a.need.Held(first, last)
}

// boundary adds the boundary behind a layer to a delay.
func (a *allocator) boundary(delay float64, l int, period float64) (float64, bool) {
	if load := a.links[l]; load > 0 {
		return periodic.Around(delay, load, period)
	}
	return delay, true
}

// stages returns the stages of an allocation, on devices in the order in which the chain comes to them.
func (a *allocator) stages(l *label) []pipeline.Stage {
	var all []pipeline.Stage
	special, used := -1, 0
	for ; l.after != nil; l = l.after {
		device := used
		if l.special && special >= 0 {
			device = special
		} else {
			used++
		}
		if l.special {
			special = device
		}
		all = append(all, pipeline.Stage{First: l.first, Last: l.after.first - 1, Devices: []int{device}})
	}
	return all
}

// load returns the largest load of a device.
func (a *allocator) load(stages []pipeline.Stage) float64 {
	loads := make([]float64, a.Platform.Devices)
	for _, s := range stages {
		loads[s.Devices[0]] += a.costs.U(s.First, s.Last)
	}
	return slices.Max(loads)
}

// frugal returns the allocation that needs the least of the special device while the others keep the limit, with one live
// minibatch everywhere. It returns nil when the limit is too small for any. Whenever a plan of this kind exists, so does
// this one: a minibatch that reaches the loss is live in all stages.
func (a *allocator) frugal() *label {
	n, normal := a.costs.Len(), a.Platform.Devices-1
	best := make([][]*label, n+2)
	for first := range best {
		best[first] = make([]*label, normal+1)
	}
	best[n+1][0] = &label{first: n + 1}
	put := func(l *label) {
		if old := best[l.first][l.normal]; old == nil || l.memory < old.memory {
			best[l.first][l.normal] = l
		}
	}
	for last := n; last >= 1; last-- {
		for used, l := range best[last+1] {
			for first := last; l != nil && first >= 1; first-- {
				need := a.need.Bytes(0, first, last, 1)
				if need <= a.limit && used < normal {
					put(&label{first: first, normal: used + 1, memory: l.memory, after: l})
				}
				if memory := l.memory + need; memory <= a.limit && !l.special {
					put(&label{first: first, normal: used, special: true, memory: memory, after: l})
				}
			}
		}
	}
	var found *label
	for _, l := range best[1] {
		if l != nil && (found == nil || l.memory < found.memory) {
			found = l
		}
	}
	return found
}

// smallest returns the smallest limit at which an allocation fits.
func (a *allocator) smallest(ctx context.Context) int64 {
	n := a.costs.Len()
	limit := a.limit
	defer func() { a.limit = limit }()
	small, enough := int64(-1), a.need.Bytes(0, 1, n, 1) // all on one device
	for enough-small > 1 && ctx.Err() == nil {
		a.limit = small + (enough-small)/2
		if a.frugal() != nil {
			enough = a.limit
		} else {
			small = a.limit
		}
	}
	return enough
}

func (a *allocator) infeasible(strategy, reason string, smallest int64) error {
	if reason == "" {
		reason = fmt.Sprintf("no stages fit on %d devices, one of which may have several, not even with one live minibatch", a.Platform.Devices)
	}
	return &pipeline.InfeasibleError{Strategy: strategy, Reason: reason, Smallest: smallest}
}
