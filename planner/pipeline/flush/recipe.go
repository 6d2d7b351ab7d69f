package flush

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// recipe is a flush schedule: where its stages are and the order of every device.
type recipe struct {
	name, summary  string
	paper, section string
	chunks         int  // stages of each device; 0: as Options.Chunks says
	split          bool // the backward is split into B and W
	recomputes     bool // stages recompute where they do not fit
	shape          shape
	// accepts refuses numbers of devices and microbatches that the schedule does not know, and names those that it does;
	// nil: it knows all.
	accepts func(devices, micros int) error
	// most is the published number of activations, each of one stage, that a device may hold; idle devices then run ahead
	// within it (see list). With nil the order is run as it is.
	most func(devices int) int
	// order is for stages*ranks of one size.
	order func(n counts) order
}

// counts is the size of a schedule.
type counts struct {
	devices int // P
	chunks  int // v
	micros  int // m
}

func (n counts) stages() int { return n.devices * n.chunks }

// shape says which ranks hold a stage.
type shape func(stage, devices int) []int

// loop goes round: stage s is on rank s mod P.
func loop(stage, devices int) []int { return []int{stage % devices} }

// vee goes down and comes back: the first and the last stage are on rank 0.
func vee(stage, devices int) []int { return []int{min(stage, 2*devices-1-stage)} }

// bidirectional has every stage twice: microbatches go down or up.
func bidirectional(stage, devices int) []int { return []int{stage, devices - 1 - stage} }

// prepare places the stages of a request that the schedule knows.
func (r *recipe) prepare(q pipeline.Request) (*placement, error) {
	if err := validate(q); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	p, err := r.place(q)
	if err != nil {
		return nil, err
	}
	if err := r.usable(q, p); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return p, nil
}

// finish is pipeline.Finish for schedules that do not depend on the memory: the smallest that works is their peak.
func finish(name string, q pipeline.Request, p *pipeline.Plan) (*pipeline.Plan, error) {
	plan, err := pipeline.Finish(name, q, p)
	if e, ok := err.(*pipeline.InfeasibleError); ok {
		e.Smallest = slices.Max(e.Best.PerDevicePeak)
	}
	return plan, err
}

// validate refuses requests that no flush schedule can serve.
func validate(q pipeline.Request) error {
	if q.Chain == nil || q.Platform == nil {
		return fmt.Errorf("%w: a request needs a chain and a platform", ErrOptions)
	}
	if err := q.Validate(); err != nil {
		return err
	}
	switch {
	case q.Microbatches < 0 || q.Microbatches > MostMicrobatches:
		return fmt.Errorf("%w: microbatches is %d, want 1 to %d, or 0 for two for each device", ErrOptions, q.Microbatches, MostMicrobatches)
	case q.Chunks < 0 || q.Chunks > MostChunks:
		return fmt.Errorf("%w: chunks is %d, want 1 to %d, or 0 for 2", ErrOptions, q.Chunks, MostChunks)
	case q.Versions != "" && q.Versions != pipeline.Flush:
		return fmt.Errorf("%w: weight versions are %q, a flush schedule has only %q", ErrOptions, q.Versions, pipeline.Flush)
	case q.Accounting != "" && q.Accounting != pipeline.Inputs && q.Accounting != pipeline.Saved:
		return fmt.Errorf("%w: accounting is %q, want %q or %q", ErrOptions, q.Accounting, pipeline.Inputs, pipeline.Saved)
	}
	for _, c := range q.WeightCopies {
		if !(c >= 0 && c <= math.MaxFloat64) {
			return fmt.Errorf("%w: weight copies are %g, which is negative or not finite", ErrOptions, c)
		}
	}
	return nil
}

// usable refuses what the schedule, as it was placed, does not know.
func (r *recipe) usable(q pipeline.Request, p *placement) error {
	if r.accepts != nil {
		if err := r.accepts(p.devices, p.micros); err != nil {
			return fmt.Errorf("%w: %w", ErrOptions, err)
		}
	}
	if n := len(q.WeightCopies); n > 1 && n != len(p.stages) {
		return fmt.Errorf("%w: %d weight copies for %d stages: give one for all or one for each", ErrOptions, n, len(p.stages))
	}
	if work := p.micros * len(p.stages); work > MostWork {
		return fmt.Errorf("%w: %d microbatches of %d stages are more than %d forwards: give at most %d microbatches", ErrOptions, p.micros, len(p.stages), MostWork, MostWork/len(p.stages))
	}
	if l := p.sums.CanSplit(); r.split && l > 0 {
		return fmt.Errorf("%w: layer %d (%s) lacks backward_input_s or backward_weight_s: this schedule runs the two halves of the backward apart, give both for every layer, as plimsoll profile --halves does", ErrHalves, l, q.Chain.Layer(l).Name)
	}
	return p.joined(q.Platform)
}

// schedule returns the timetable of the recipe at the costs of a placement. Where idle devices may run ahead, it takes the
// better of two: the decisions of equal costs, for which the schedule is published, and those of the costs at hand.
func (r *recipe) schedule(p *placement) timetable {
	c := p.costs(r.split)
	orders := r.order(p.counts)
	if r.most == nil {
		return must(r.name, c, orders, 0)
	}
	most := r.most(p.devices)
	published := must(r.name, unit(c.stages, c.micros, r.split), orders, most)
	a := must(r.name, c, published.order, 0)
	if b := must(r.name, c, orders, most); b.makespan < a.makespan {
		return b
	}
	return a
}

// must runs an order of ours, which never deadlocks.
func must(name string, c costs, o order, most int) timetable {
	t, ok := run(c, o, most)
	if !ok {
		panic("BUG: the order of " + name + " deadlocks")
	}
	return t
}

// placement is stages on devices.
type placement struct {
	counts
	sums   *pipeline.Costs
	stages []pipeline.Stage
	ranks  []int // device of each rank
	shape  shape
	links  *pipeline.Platform
}

// place lays the stages of a request out, or makes them.
func (r *recipe) place(q pipeline.Request) (*placement, error) {
	p := &placement{sums: pipeline.NewCosts(q.Chain), shape: r.shape, links: q.Platform}
	p.chunks = r.chunks
	if p.chunks == 0 {
		p.chunks = cmp.Or(q.Chunks, 2)
	}
	if len(q.Stages) > 0 {
		if err := p.given(q); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", r.name, ErrOptions, err)
		}
	} else if err := p.balanced(r, q); err != nil {
		return nil, err
	}
	p.micros = cmp.Or(q.Microbatches, 2*p.devices)
	return p, nil
}

// balanced divides the chain into stages of equal time, on all devices of the platform.
func (p *placement) balanced(r *recipe, q pipeline.Request) error {
	p.devices = q.Platform.Devices
	if n := q.Chain.Len(); p.counts.stages() > n {
		return &pipeline.InfeasibleError{
			Strategy: r.name,
			Reason:   fmt.Sprintf("%d devices with %d stages each need %d layers, the chain has %d%s", p.devices, p.chunks, p.counts.stages(), n, r.enough(n/p.chunks, q.Microbatches)),
		}
	}
	first := 1
	for s, last := range equal(p.sums, p.counts.stages()) {
		p.stages = append(p.stages, pipeline.Stage{First: first, Last: last, Devices: p.shape(s, p.devices)})
		first = last + 1
	}
	for d := range p.devices {
		p.ranks = append(p.ranks, d)
	}
	return nil
}

// enough says which number of devices, up to a limit, has enough layers and is one that the schedule knows; "" where none is.
func (r *recipe) enough(limit, micros int) string {
	for ; limit > 0; limit-- {
		if r.accepts == nil || r.accepts(limit, cmp.Or(micros, 2*limit)) == nil {
			return fmt.Sprintf("; it has enough for %s", units.Count(limit, "device"))
		}
	}
	return ""
}

// given takes the stages of the request. Those that name devices say which device is which rank.
func (p *placement) given(q pipeline.Request) error {
	if len(q.Stages)%p.chunks != 0 {
		return fmt.Errorf("%d stages cannot be %d on each device: give a multiple of %d", len(q.Stages), p.chunks, p.chunks)
	}
	p.devices = len(q.Stages) / p.chunks
	if p.devices > q.Platform.Devices {
		return fmt.Errorf("%d stages, %d on each device, need %d devices, the platform has %d", len(q.Stages), p.chunks, p.devices, q.Platform.Devices)
	}
	p.ranks = slices.Repeat([]int{pipeline.NoDevice}, p.devices)
	next := 1
	for s, st := range q.Stages {
		if st.First != next || st.Last < st.First || st.Last > q.Chain.Len() {
			return fmt.Errorf("stage %d holds layers %d to %d, it must start at layer %d and end at %d at most", s, st.First, st.Last, next, q.Chain.Len())
		}
		if len(st.Ops) > 0 || len(st.LastOps) > 0 {
			return fmt.Errorf("stage %d has its own ops, which flush schedules do not know", s)
		}
		next = st.Last + 1
		if err := p.assign(s, st, q.Platform.Devices); err != nil {
			return err
		}
	}
	if next != q.Chain.Len()+1 {
		return fmt.Errorf("the stages end at layer %d, the chain has %d", next-1, q.Chain.Len())
	}
	p.number(q)
	return nil
}

// assign lets the devices of a stage be its ranks.
func (p *placement) assign(s int, st pipeline.Stage, devices int) error {
	want := p.shape(s, p.devices)
	if len(st.Devices) != 0 && len(st.Devices) != len(want) {
		return fmt.Errorf("stage %d names %d devices, in this schedule it has %d", s, len(st.Devices), len(want))
	}
	for i, d := range st.Devices {
		if d < 0 || d >= devices {
			return fmt.Errorf("stage %d is on device %d, the platform has 0 to %d", s, d, devices-1)
		}
		rank := want[i]
		if had := p.ranks[rank]; had != pipeline.NoDevice && had != d {
			return fmt.Errorf("stage %d is on device %d, in this schedule it shares device %d with an earlier stage", s, d, had)
		}
		if other := slices.Index(p.ranks, d); other >= 0 && other != rank {
			return fmt.Errorf("stage %d is on device %d, which has other stages already that are not together with it in this schedule", s, d)
		}
		p.ranks[rank] = d
	}
	return nil
}

// number gives ranks that no stage named the free devices, in order, and all stages their devices.
func (p *placement) number(q pipeline.Request) {
	next := 0
	for i, d := range p.ranks {
		if d != pipeline.NoDevice {
			continue
		}
		for slices.Contains(p.ranks, next) {
			next++
		}
		p.ranks[i] = next
	}
	for s, st := range q.Stages {
		out := pipeline.Stage{First: st.First, Last: st.Last}
		for _, rank := range p.shape(s, p.devices) {
			out.Devices = append(out.Devices, p.ranks[rank])
		}
		p.stages = append(p.stages, out)
	}
}

// equal returns the last layers of so many stages whose longest, forward and backward, is as short as possible.
func equal(sums *pipeline.Costs, stages int) []int {
	low, high := 0.0, sums.U(1, sums.Len())
	best := fill(sums, stages, high)
	for range 64 {
		mid := low + (high-low)/2
		if ends := fill(sums, stages, mid); longest(sums, ends) <= mid {
			best, high = ends, mid
		} else {
			low = mid
		}
	}
	return best
}

// fill makes stages one after the other, each as long as the limit and the layers that later stages need allow.
func fill(sums *pipeline.Costs, stages int, limit float64) []int {
	ends := make([]int, 0, stages)
	first := 1
	for s := range stages - 1 {
		last := first
		for last < sums.Len()-(stages-1-s) && sums.U(first, last+1) <= limit {
			last++
		}
		ends = append(ends, last)
		first = last + 1
	}
	return append(ends, sums.Len())
}

func longest(sums *pipeline.Costs, ends []int) float64 {
	top, first := 0.0, 1
	for _, last := range ends {
		top = max(top, sums.U(first, last))
		first = last + 1
	}
	return top
}

// joined refuses a platform on which neighbouring stages have no link.
func (p *placement) joined(platform *pipeline.Platform) error {
	for s := range len(p.stages) - 1 {
		for i, x := range p.stages[s].Devices {
			y := p.stages[s+1].Devices[i]
			if x != y && platform.Beta(x, y) == 0 {
				return fmt.Errorf("%w: stages %d and %d are on devices %d and %d, which no link joins: give a bandwidth above 0 for \"%d-%d\", or stages on other devices",
					pipeline.ErrPlatform, s, s+1, x, y, min(x, y), max(x, y))
			}
		}
	}
	return nil
}

// costs returns the times of the stages' work.
func (p *placement) costs(split bool) costs {
	c := costs{stages: len(p.stages), micros: p.micros, message: p.message, duplex: p.links.Duplex}
	for _, st := range p.stages {
		c.compute[pipeline.F] = append(c.compute[pipeline.F], p.sums.Forward(st.First, st.Last))
		if !split {
			c.compute[pipeline.B] = append(c.compute[pipeline.B], p.sums.Backward(st.First, st.Last))
			continue
		}
		c.compute[pipeline.B] = append(c.compute[pipeline.B], p.sums.BackwardInput(st.First, st.Last))
		c.compute[pipeline.W] = append(c.compute[pipeline.W], p.sums.BackwardWeight(st.First, st.Last))
	}
	return c
}

// message returns the time of a_l or δ_l after a stage, between two ranks.
func (p *placement) message(kind pipeline.Kind, stage, from, to int) float64 {
	l := p.stages[stage].Last
	bytes := p.sums.Chain.Activation(l)
	if kind == pipeline.CB {
		bytes = p.sums.Chain.Gradient(l)
	}
	return p.links.Seconds(bytes, p.ranks[from], p.ranks[to])
}

// plan writes a timetable down, tasks in order of their start.
func (p *placement) plan(q pipeline.Request, t timetable) *pipeline.Plan {
	plan := &pipeline.Plan{
		Stages: p.stages, Versions: pipeline.Flush, Microbatches: p.micros,
		Copies: pipeline.Copies{WeightCopies: q.WeightCopies, Accounting: q.Accounting},
	}
	cells := costs{stages: len(p.stages), micros: p.micros}
	for rank, ops := range t.order {
		for _, o := range ops {
			plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: o.kind, Stage: o.stage, Device: p.ranks[rank], Start: t.starts[cells.cell(o)], Shift: o.micro})
		}
	}
	for _, s := range t.sends {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: s.kind, Stage: s.stage, Device: p.ranks[s.from], Start: s.start, Shift: s.micro})
	}
	slices.SortStableFunc(plan.Tasks, func(a, b pipeline.Task) int { return cmp.Compare(a.Start, b.Start) })
	return plan
}

// multiple refuses microbatches that are no multiple of what the schedule needs.
func multiple(micros, of int, why string) error {
	if micros%of == 0 {
		return nil
	}
	near := micros / of * of
	if near == 0 {
		return fmt.Errorf("%d microbatches: it needs a multiple of %d, %s: give %d or %d", micros, of, why, of, 2*of)
	}
	return fmt.Errorf("%d microbatches: it needs a multiple of %d, %s: give %d or %d", micros, of, why, near, near+of)
}
