package flush

import (
	"context"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/recompute"
	"plimsoll/planner/schedule"
)

// recomputing1F1B: 1f1b-flush whose stages recompute just as much as their memory asks, and whose stages are chosen for that.
//
// Stage s of q holds at most g = min(m, q-s) microbatches, whatever takes how long. So each range of layers has a fastest sequence for each
// place in the pipeline (recompute.Sequences), as in AdaPipe (Sun et al. 2024). There stages choose the layers that they keep; here they
// may run any of rotor's sequences. Of times t(s) of a microbatch in the stages, and of the messages behind them, a step takes about
//
//	Σ t(s) + (m-1)·T,  T = max over s of max(t(s), (t(s) + ... + t(q-1)) / g(s))
//
// since a stage with g microbatches in flight waits for the first of them to come back. For a bound on T a dynamic program over (stage,
// first layer) finds the stages with the smallest sum. The bound falls until there are none. The stages that it finds, and the stages
// of equal time, are scheduled, and the fastest is the plan. It is never slower than 1f1b-flush with the same stages on all devices.
//
// O(q·L²) for each bound, beside the sequences.
type recomputing1F1B struct {
	pipeline.Request
	sums   *pipeline.Costs
	seqs   *recompute.Sequences
	micros int
	known  map[rowKey][]stageWay // by the last layer
	below  float64               // seconds of the fastest step yet: slower ones are not wanted
}

// rowKey identifies the inputs of the choices of a sequence for stages that begin with a layer.
type rowKey struct {
	memory      int64 // bytes of the device
	live, first int
	copies      float64
}

// stageWay is how a stage runs.
type stageWay struct {
	seconds float64 // of a microbatch, forward and backward
	number  int     // of its sequence; keepsAll: it keeps everything
	fits    bool
	known   bool
}

const keepsAll = -1

// recompute1F1B registers the schedule.
func recompute1F1B() pipeline.Strategy {
	const name = "1f1b-recompute"
	return pipeline.Strategy{
		Name: name, Type: pipeline.Flushing,
		Summary: "1f1b-flush whose stages are chosen, and recompute, just as much as their memory asks",
		Paper:   "AdaPipe (Sun et al. 2024)", Section: "adaptive recomputation and partitioning, over rotor's sequences (thesis, Theorem 6)",
		Solve: func(ctx context.Context, q pipeline.Request) (*pipeline.Plan, error) {
			return solveRecomputing1F1B(ctx, name, q)
		},
	}
}

func solveRecomputing1F1B(ctx context.Context, name string, q pipeline.Request) (*pipeline.Plan, error) {
	base := oneForwardOneBackward()
	base.name = name
	p, err := base.prepare(q)
	if err != nil {
		return nil, err
	}
	x := &recomputing1F1B{Request: q, sums: p.sums, micros: p.micros, known: map[rowKey][]stageWay{}, below: math.Inf(1)}
	x.seqs = recompute.For(ctx, x.sums, slices.Max(q.Platform.Memory))
	var best *draft
	try := func(stages []pipeline.Stage) error {
		d, err := x.draft(&base, stages)
		if err == nil && d.makespan < x.below {
			best, x.below = d, d.makespan
		}
		return err
	}
	if stages := x.given(p.stages); stages != nil {
		if err := try(stages); err != nil {
			return nil, err
		}
	}
	for n := p.devices; n > 0 && len(q.Stages) == 0; n-- {
		if !x.counts(n) {
			continue
		}
		if x.sums.U(1, x.sums.Len())/float64(n)*float64(x.micros) >= x.below { // all of the work, divided evenly
			break
		}
		if err := x.choose(ctx, n, try); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if best == nil {
		works := x.smallest(p.stages, x.fewest)
		return nil, &pipeline.InfeasibleError{Strategy: name, Smallest: works, Found: x.smallest(p.stages, x.least) < works,
			Reason: "not even with stages that keep their inputs alone and recompute everything else"}
	}
	return best.plan()
}

// live returns how many microbatches are in flight in a stage of n.
func (x *recomputing1F1B) live(s, n int) int { return min(x.micros, n-s) }

// counts reports whether there are copies of the weights for n stages.
func (x *recomputing1F1B) counts(n int) bool {
	return len(x.WeightCopies) < 2 || len(x.WeightCopies) == n
}

// copies returns the number of copies of stage s's weights.
func (x *recomputing1F1B) copies(s int) (n float64) {
	switch len(x.WeightCopies) {
	case 0:
		n, _ = pipeline.Flush.Copies(1)
		return n
	case 1:
		return x.WeightCopies[0]
	}
	return x.WeightCopies[s]
}

// way returns how stage s of n runs layers on a device.
func (x *recomputing1F1B) way(s, n, d, first, last int) stageWay {
	return x.wayOf(x.row(s, n, d, first), s, n, d, first, last)
}

// row returns the ways of stages s of n that begin with a layer, as far as they are known.
func (x *recomputing1F1B) row(s, n, d, first int) []stageWay {
	key := rowKey{x.Platform.Memory[d], x.live(s, n), first, x.copies(s)}
	row := x.known[key]
	if row == nil {
		row = make([]stageWay, x.sums.Len()+1)
		x.known[key] = row
	}
	return row
}

// wayOf is way, where the row is at hand.
func (x *recomputing1F1B) wayOf(row []stageWay, s, n, d, first, last int) stageWay {
	if row[last].known {
		return row[last]
	}
	w := stageWay{seconds: x.sums.U(first, last), number: keepsAll, fits: x.bytes(s, n, first, last) <= x.Platform.Memory[d], known: true}
	if !w.fits {
		var again float64
		w.number, again, w.fits = x.seqs.Fastest(first, last, x.live(s, n), x.Platform.Memory[d]-x.fixed(s, n, first, last))
		w.seconds += again
	}
	row[last] = w
	return w
}

// bytes returns the bytes of stage s of n, if it keeps everything.
func (x *recomputing1F1B) bytes(s, n, first, last int) int64 {
	bytes := x.sums.Memory(first, last, x.live(s, n), x.copies(s), x.Accounting)
	if x.Platform.NoBuffers {
		return bytes - x.sums.Buffers(first, last)
	}
	return bytes + x.sums.ReceivesShared(first, last)
}

// fixed returns the bytes of a stage beside its own sequence: weights, buffers and the inputs of its microbatches.
func (x *recomputing1F1B) fixed(s, n, first, last int) int64 {
	return x.bytes(s, n, first, last) - int64(x.live(s, n))*(x.sums.Held(first, last, x.Accounting)-x.Chain.Activation(first-1))
}

// given lets stages recompute as their memory asks; nil when they do not fit.
func (x *recomputing1F1B) given(stages []pipeline.Stage) (all []pipeline.Stage) {
	for s, st := range stages {
		w := x.way(s, len(stages), st.Devices[0], st.First, st.Last)
		if !w.fits {
			return nil
		}
		all = append(all, x.stage(st, w, x.live(s, len(stages))))
	}
	return all
}

// stage returns a stage that runs in a way.
func (x *recomputing1F1B) stage(st pipeline.Stage, w stageWay, live int) pipeline.Stage {
	if w.number != keepsAll {
		st.Ops = x.seqs.Ops(st.First, st.Last, live, w.number)
	}
	return st
}

// choose tries the best stages on the first n devices for falling bounds on T.
func (x *recomputing1F1B) choose(ctx context.Context, n int, try func([]pipeline.Stage) error) error {
	total := x.sums.U(1, x.sums.Len())
	bound, longest := total/float64(n), x.longest(n)
	c := newCut(x, n)
	for !c.cut(bound) {
		if err := ctx.Err(); err != nil || bound >= longest {
			return err
		}
		bound = min(max(bound*growth, longest*floor), longest)
	}
	if x.micros > 1 { // with a larger bound the messages and the waiting could only be paid by less work than there is
		bound = max(bound, (c.seconds()-total)/float64(x.micros-1))
	}
	if x.micros == 1 {
		bound = longest
	}
	bound = min(bound, x.below/float64(x.micros)) // each stage runs all microbatches; the messages and sums are bounded, too, by judgement
	for range mostCuts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !c.cut(bound) {
			return nil
		}
		if c.least() < x.below {
			if err := try(c.stages()); err != nil {
				return err
			}
		}
		bound = c.period * (1 - 1e-9)
	}
	return nil
}

const (
	growth   = 1.25 // the step with which the first bound that is possible is looked for
	floor    = 1e-9 // the part of the longest that it is at least behind the first step: there are layers that take no time
	mostCuts = 64   // bounds that are tried for a number of devices
)

// longest returns a time that no T of n stages needs to be above.
func (x *recomputing1F1B) longest(n int) float64 {
	sum := 0.0
	for l := 1; l <= x.sums.Len(); l++ {
		sum += x.Chain.Layer(l).DiscardSeconds()
	}
	sum = x.sums.U(1, x.sums.Len()) + float64(x.sums.Len())*sum
	for s := range n - 1 {
		slowest := 0.0
		for l := 1; l < x.sums.Len(); l++ {
			slowest = max(slowest, x.messages(s, l))
		}
		sum += slowest
	}
	return sum
}

// messages returns the seconds of both messages behind stage s, which ends with a layer.
func (x *recomputing1F1B) messages(s, last int) float64 {
	return x.Platform.Seconds(x.Chain.Activation(last), s, s+1) + x.Platform.Seconds(x.Chain.Gradient(last), s+1, s)
}

// cut is stages on n devices within a bound on T.
type cut struct {
	*recomputing1F1B
	n      int
	rest   [][]float64 // by stage and first layer: seconds of a microbatch there and behind
	last   [][]int     // likewise, of the stage
	period float64     // T
}

func newCut(x *recomputing1F1B, n int) *cut {
	c := &cut{recomputing1F1B: x, n: n}
	for range n + 1 {
		c.rest, c.last = append(c.rest, make([]float64, x.sums.Len()+2)), append(c.last, make([]int, x.sums.Len()+2))
	}
	return c
}

// cut finds the stages with the smallest sum within a bound; false: there are none.
func (c *cut) cut(bound float64) bool {
	layers := c.sums.Len()
	for l := range c.rest[c.n] {
		c.rest[c.n][l] = math.Inf(1)
	}
	c.rest[c.n][layers+1] = 0
	for s := c.n - 1; s >= 0; s-- {
		for first := range c.rest[s] {
			c.rest[s][first] = math.Inf(1)
		}
		for first := layers - (c.n - 1 - s); first > s; first-- {
			c.end(s, first, bound)
		}
	}
	if math.IsInf(c.rest[0][1], 1) {
		return false
	}
	c.period = 0
	for s, first := 0, 1; s < c.n; s++ {
		last := c.last[s][first]
		c.period = max(c.period, c.way(s, c.n, s, first, last).seconds, c.rest[s][first]/float64(c.live(s, c.n)))
		if s < c.n-1 {
			c.period = max(c.period, c.messages(s, last))
		}
		first = last + 1
	}
	return true
}

// end tries all ends of stage s, which begins with a layer.
func (c *cut) end(s, first int, bound float64) {
	row := c.row(s, c.n, s, first)
	for last := first; last <= c.sums.Len() && c.sums.U(first, last) <= bound; last++ {
		rest := c.rest[s+1][last+1]
		if s < c.n-1 && !math.IsInf(rest, 1) {
			m := c.messages(s, last)
			if m > bound {
				continue
			}
			rest += m
		}
		if rest+c.sums.U(first, last) >= c.rest[s][first] {
			continue
		}
		w := c.wayOf(row, s, c.n, s, first, last)
		sum := rest + w.seconds
		if !w.fits || w.seconds > bound || sum > bound*float64(c.live(s, c.n))*(1+1e-9) || sum >= c.rest[s][first] {
			continue
		}
		c.rest[s][first], c.last[s][first] = sum, last
	}
}

// seconds returns about what a step takes.
func (c *cut) seconds() float64 { return c.rest[0][1] + float64(c.micros-1)*c.period }

// least returns seconds that no step of the stages of the latest cut is below. Stage s runs m microbatches. The first one comes through the
// stages before it, and the gradient of the last one goes back through them. These may recompute before the gradient is there.
func (c *cut) least() (seconds float64) {
	before := 0.0
	for s, first := 0, 1; s < c.n; s++ {
		last := c.last[s][first]
		w := c.way(s, c.n, s, first, last)
		seconds = max(seconds, before+float64(c.micros)*w.seconds)
		st := c.stage(pipeline.Stage{First: first, Last: last}, w, c.live(s, c.n))
		if before += w.seconds; len(st.Ops) > 0 {
			_, hidden, _ := parts(c.Chain, st)
			before -= hidden
		}
		if s < c.n-1 {
			before += c.messages(s, last)
		}
		first = last + 1
	}
	return seconds * (1 - 1e-9)
}

// stages returns the stages of the latest cut.
func (c *cut) stages() (all []pipeline.Stage) {
	for s, first := 0, 1; s < c.n; s++ {
		st := pipeline.Stage{First: first, Last: c.last[s][first], Devices: []int{s}}
		all = append(all, c.stage(st, c.way(s, c.n, s, st.First, st.Last), c.live(s, c.n)))
		first = st.Last + 1
	}
	return all
}

// draft is a schedule of stages, without its plan: judging that takes longer than the schedule.
type draft struct {
	*recomputing1F1B
	name   string
	place  *placement
	stages []pipeline.Stage
	costs  costs
	timetable
}

// draft schedules stages.
func (x *recomputing1F1B) draft(base *recipe, stages []pipeline.Stage) (*draft, error) {
	r := x.Request
	r.Stages, r.Microbatches = slices.Clone(stages), x.micros
	for s := range r.Stages {
		r.Stages[s].Ops = nil
	}
	p, err := base.prepare(r)
	if err != nil {
		return nil, err
	}
	ops := make([]schedule.Sequence, len(stages))
	for s, st := range stages {
		ops[s] = st.Ops
	}
	c, t, err := base.recomputing(p, base.order(p.counts), ops)
	if err != nil {
		return nil, err
	}
	return &draft{x, base.name, p, stages, c, t}, nil
}

// plan returns the plan of a draft, judged.
func (d *draft) plan() (*pipeline.Plan, error) {
	plan := d.place.plan(d.Request, d.place.withRecomputation(d.costs, d.timetable))
	for s := range plan.Stages {
		plan.Stages[s].Ops = d.stages[s].Ops
	}
	return finish(d.name, d.Request, plan)
}

// smallest returns a memory of each device in which there are stages, or those that are given fit, when each stage needs as many bytes as
// need says.
func (x *recomputing1F1B) smallest(given []pipeline.Stage, need func(s, n, first, last int) int64) int64 {
	if len(x.Stages) > 0 {
		most := int64(0)
		for s, st := range given {
			most = max(most, need(s, len(given), st.First, st.Last))
		}
		return most
	}
	least := int64(math.MaxInt64)
	for n := 1; n <= len(given); n++ {
		if x.counts(n) {
			least = min(least, x.smallestOn(n, need))
		}
	}
	return least
}

// fewest returns the bytes of a stage that keeps everything or its inputs alone, whichever takes less; of one minibatch in flight those of
// any way.
func (x *recomputing1F1B) fewest(s, n, first, last int) int64 {
	if x.live(s, n) == 1 {
		return x.least(s, n, first, last)
	}
	return min(x.bytes(s, n, first, last), x.fixed(s, n, first, last)+x.seqs.Bytes(first, last))
}

// least returns bytes that every way of a stage needs.
func (x *recomputing1F1B) least(s, n, first, last int) int64 {
	return min(x.bytes(s, n, first, last), x.fixed(s, n, first, last)+x.seqs.Least(first, last))
}

// smallestOn is smallest for n stages: the least of the largest, by the last layers placed.
func (x *recomputing1F1B) smallestOn(n int, need func(s, n, first, last int) int64) int64 {
	layers := x.sums.Len()
	behind := slices.Repeat([]int64{math.MaxInt64}, layers+2)
	behind[layers+1] = 0
	for s := n - 1; s >= 0; s-- {
		here := slices.Repeat([]int64{math.MaxInt64}, layers+2)
		for first := 1; first <= layers; first++ {
			for last := first; last <= layers; last++ {
				if behind[last+1] < here[first] {
					here[first] = min(here[first], max(behind[last+1], need(s, n, first, last)))
				}
			}
		}
		behind = here
	}
	return behind[1]
}
