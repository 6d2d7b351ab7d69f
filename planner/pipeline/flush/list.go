package flush

import (
	"math"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/events"
)

// list is the list scheduler below all schedules: from the order of every device it finds when every op starts, each as
// early as it can, with communications in between. A link carries messages in the order in which they are ready.
//
// Where most is above 0 a device that would idle may run a later op of its order instead. That is the first that is
// ready and does not make its live activations exceed most, now or before the place where the op stood. So an order
// that respects the cap still does, and can still end.
type list struct {
	costs
	most   int // live activations of a device; 0: run the order as it is
	ranks  []rank
	links  map[[2]int]*link
	rankOf []int     // by stage and microbatch
	wait   []int     // inputs that an op still waits for, by cell
	starts []float64 // by cell; NaN until the op starts
	sends  []send
	clock  events.Clock[job]
	left   int
	// what may start something since the last dispatch
	wokenRanks []int
	wokenLinks []*link
}

// rank is a device at work.
type rank struct {
	queue []op // what is left of its order
	ran   []op
	live  int
	busy  bool
}

// costs are the times of work, in seconds.
type costs struct {
	stages, micros int
	compute        [again + 1][]float64 // by kind and stage; W nil: the backward is whole
	last           []float64            // F of the last microbatch by stage; nil: as that of the others
	// message returns the time of CF or CB of the boundary after a stage, between two ranks.
	message func(kind pipeline.Kind, stage, from, to int) float64
	duplex  bool
}

// again is the kind of a forward that runs a second time. It waits for nothing but its turn, and nothing waits for it.
const again = pipeline.CB + 1

// unit returns costs at which every op takes one second and messages none: those for which orders are published.
func unit(stages, micros int, split bool) costs {
	c := costs{stages: stages, micros: micros, message: func(pipeline.Kind, int, int, int) float64 { return 0 }}
	ones := slices.Repeat([]float64{1}, stages)
	c.compute[pipeline.F], c.compute[pipeline.B] = ones, ones
	if split {
		c.compute[pipeline.W] = ones
	}
	return c
}

func (c *costs) split() bool { return c.compute[pipeline.W] != nil }

// seconds returns the time of an op.
func (c *costs) seconds(o op) float64 {
	if o.kind == pipeline.F && o.micro == c.micros-1 && c.last != nil {
		return c.last[o.stage]
	}
	return c.compute[o.kind][o.stage]
}

// cell numbers ops.
func (c *costs) cell(o op) int {
	kind := min(o.kind, pipeline.W+1) - pipeline.F // again follows W
	return (int(kind)*c.stages+o.stage)*c.micros + o.micro
}

// send is a message: CF or CB of the boundary after a stage.
type send struct {
	op
	from, to int // ranks
	reader   op  // what it lets run
	start    float64
}

// link is a resource for messages: one to carry at a time.
type link struct {
	busy  bool
	queue []send
}

// job is an op on a rank or, on a link, the message that the op waits for.
type job struct {
	op   op
	rank int
	link *link
}

// timetable is when everything runs.
type timetable struct {
	order    order     // as it ran
	starts   []float64 // by cell
	sends    []send
	makespan float64
}

// run schedules an order. ok is false when it deadlocks: ops wait for each other.
func run(c costs, o order, most int) (t timetable, ok bool) {
	l := &list{costs: c, most: most, links: map[[2]int]*link{}}
	l.prepare(o)
	l.dispatch()
	for ended := l.clock.Next(); len(ended) > 0; ended = l.clock.Next() {
		l.end(ended)
		l.dispatch()
	}
	t = timetable{starts: l.starts, sends: l.sends, makespan: l.clock.Now}
	for _, r := range l.ranks {
		t.order = append(t.order, r.ran)
	}
	return t, l.left == 0
}

func (l *list) prepare(o order) {
	l.starts = slices.Repeat([]float64{math.NaN()}, l.cell(op{kind: again, stage: l.stages}))
	l.wait = make([]int, len(l.starts))
	l.rankOf = make([]int, l.stages*l.micros)
	for d, ops := range o {
		l.ranks = append(l.ranks, rank{queue: slices.Clone(ops), ran: make([]op, 0, len(ops))})
		l.wokenRanks = append(l.wokenRanks, d)
		l.left += len(ops)
		for _, x := range ops {
			l.wait[l.cell(x)] = l.inputs(x)
			l.rankOf[x.stage*l.micros+x.micro] = d
		}
	}
}

// inputs returns for how many others an op waits.
func (l *list) inputs(o op) int {
	switch {
	case o.kind == again, o.kind == pipeline.F && o.stage == 0:
		return 0
	case o.kind == pipeline.B && o.stage < l.stages-1:
		return 2
	}
	return 1
}

// end frees what has run, and hands on what came of it.
func (l *list) end(all []job) {
	for _, e := range all {
		if e.link != nil {
			e.link.busy = false
			l.wokenLinks = append(l.wokenLinks, e.link)
			l.arrived(e.op)
			continue
		}
		l.ranks[e.rank].busy = false
		l.wokenRanks = append(l.wokenRanks, e.rank)
		l.left--
		l.ended(e.op, e.rank)
	}
}

// ended gives the result of an op to those that wait for it.
func (l *list) ended(o op, from int) {
	switch o.kind {
	case pipeline.F:
		l.arrived(op{pipeline.B, o.stage, o.micro})
		if o.stage+1 < l.stages {
			l.pass(pipeline.CF, o.stage, from, op{pipeline.F, o.stage + 1, o.micro})
		}
	case pipeline.B:
		if l.split() {
			l.arrived(op{pipeline.W, o.stage, o.micro})
		}
		if o.stage > 0 {
			l.pass(pipeline.CB, o.stage-1, from, op{pipeline.B, o.stage - 1, o.micro})
		}
	}
	if l.leaves(o) {
		l.ranks[from].live--
	}
}

// leaves reports whether an activation is free when the op ends.
func (l *list) leaves(o op) bool {
	return o.kind == pipeline.W || o.kind == pipeline.B && !l.split()
}

// rank returns where an op runs.
func (l *list) rank(o op) int { return l.rankOf[o.stage*l.micros+o.micro] }

// arrived gives an op one of its inputs.
func (l *list) arrived(o op) {
	l.wait[l.cell(o)]--
	l.wokenRanks = append(l.wokenRanks, l.rank(o))
}

// pass hands a tensor to an op: at once on the same device or over a link that takes no time, or else by a message.
func (l *list) pass(kind pipeline.Kind, boundary, from int, reader op) {
	to := l.rank(reader)
	if from == to || l.message(kind, boundary, from, to) == 0 {
		l.arrived(reader)
		return
	}
	r := l.link(from, to)
	r.queue = append(r.queue, send{op: op{kind, boundary, reader.micro}, from: from, to: to, reader: reader})
	l.wokenLinks = append(l.wokenLinks, r)
}

// link returns the link that carries messages from a rank to another.
func (l *list) link(from, to int) *link {
	ends := [2]int{from, to}
	if !l.duplex {
		ends = [2]int{min(from, to), max(from, to)}
	}
	if l.links[ends] == nil {
		l.links[ends] = &link{}
	}
	return l.links[ends]
}

// dispatch starts what can start now.
func (l *list) dispatch() {
	for _, r := range l.wokenLinks {
		if !r.busy && len(r.queue) > 0 {
			l.carry(r)
		}
	}
	for _, d := range l.wokenRanks {
		if l.ranks[d].busy {
			continue
		}
		if i := l.pick(&l.ranks[d]); i >= 0 {
			l.start(d, i)
		}
	}
	l.wokenLinks, l.wokenRanks = l.wokenLinks[:0], l.wokenRanks[:0]
}

func (l *list) carry(r *link) {
	s := r.queue[0]
	r.busy, r.queue = true, r.queue[1:]
	s.start = l.clock.Now
	l.sends = append(l.sends, s)
	l.clock.Start(job{op: s.reader, link: r}, l.message(s.kind, s.stage, s.from, s.to))
}

// horizon is how far ahead of its place an op may run, in ops for each live activation: an activation takes three.
const horizon = 8

// pick returns the position in its queue of what a device runs next; -1: it waits.
func (l *list) pick(r *rank) int {
	live, peak := r.live, r.live
	for i, o := range r.queue[:min(len(r.queue), 1+horizon*l.most)] {
		ready := l.wait[l.cell(o)] == 0
		if ready && (i == 0 || o.kind != pipeline.F || peak < l.most) {
			return i
		}
		switch {
		case o.kind == pipeline.F:
			live++
		case l.leaves(o):
			live--
		}
		peak = max(peak, live)
	}
	return -1
}

// start runs the i-th op of a device's queue.
func (l *list) start(d, i int) {
	r := &l.ranks[d]
	o := r.queue[i]
	copy(r.queue[1:i+1], r.queue[:i])
	r.queue = r.queue[1:]
	r.ran = append(r.ran, o)
	r.busy = true
	if o.kind == pipeline.F {
		r.live++
	}
	l.starts[l.cell(o)] = l.clock.Now
	l.clock.Start(job{op: o, rank: d}, l.seconds(o))
}
