package pipeline

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"plimsoll/planner/chain"
)

// Synchronize returns a plan with messages that add up the gradients of its replicas, in place of its present messages. The plan gets
// no messages if no stage with weights is on several devices, if they take no time, or if no link joins successive devices of a
// stage.
//
// The layers of a stage are divided into buckets of about as many bytes. When the backward reaches a bucket, the sum goes from device to
// device, and back the same way. So each link, of two directions, carries the bytes once each way. This is the chain all-reduce,
// pipelined over buckets (wait-free backpropagation, Zhang et al. 2017, Poseidon). Messages take the first time at which their link is
// free beside all others of the plan, in the order in which they are ready: list scheduling. Among a few numbers of buckets, Synchronize
// takes the one that ends earliest. All tasks of a flush plan stay where they are, and its makespan is longer. If links have no room in a
// period, it is stretched, with everything in it. The stretch is the smallest that is found, within 0.1 %, or somewhat more if sums then
// come periods earlier.
//
// With a flush, and links between all of a stage's r replicas, a bucket may go in r parts (reduce-scatter and all-gather). Each part goes
// straight to its owner, which adds it up, and from there to all. Each link of two directions then carries 2/r of the bytes each way.
// Synchronize takes what ends first. With field Zero all buckets go in parts. Their owners then send new weights, when all gradients have come.
// Such a plan always has messages.
//
// Where blocks for sums that arrive need more memory than there is, buckets are smaller, and at last whole.
//
// Errors: of a plan with replicas those of Check up to RuleSynchronization; ErrPlan where Zero needs a link that there is not.
func Synchronize(c *chain.Chain, p *Platform, plan *Plan) (*Plan, error) {
	out, _, _, err := synchronizeAndCheck(c, p, plan)
	return out, err
}

// synchronizeAndCheck returns Synchronize's plan, and what Check says of it.
func synchronizeAndCheck(c *chain.Chain, p *Platform, plan *Plan) (best *Plan, report *Report, refused, err error) {
	for way := (sending{1, false}); way.fewest != none; {
		out, err := synchronize(c, p, plan, way)
		if err != nil {
			return nil, nil, nil, err
		}
		r, wrong := Check(c, p, out)
		var invalid *InvalidError
		if !errors.As(wrong, &invalid) || !invalid.OnlyMemory() {
			return out, r, wrong, nil
		}
		if best == nil || slices.Max(r.PerDevicePeak) < slices.Max(report.PerDevicePeak) {
			best, report, refused = out, r, wrong
		}
		way = out.smaller(way)
	}
	return best, report, refused, nil
}

// sending is how Synchronize may send sums.
type sending struct {
	fewest int  // buckets of a stage, or one for each layer where that is fewer
	whole  bool // no bucket goes in parts, but where owners update them
}

// smaller returns a way to send sums behind one whose blocks are too large: with smaller blocks, and at last in whole buckets.
func (p *Plan) smaller(way sending) sending {
	if p.Zero.dividesWeights() { // a stage has one bucket
		return sending{none, way.whole}
	}
	fewest := p.fewer(way.fewest)
	if fewest == none && !way.whole && p.Zero == ZeroNothing && slices.ContainsFunc(p.Synchronization, func(m Synchronization) bool { return m.Part > 0 }) {
		return sending{1, true}
	}
	return sending{fewest, way.whole}
}

// none is a number of buckets that there is nothing behind.
const none = 0

// fewer returns the fewest buckets of a stage with which blocks are smaller than the plan's. That is twice as many as the plan was to
// have, at last exactly one bucket, which has one block.
func (p *Plan) fewer(fewest int) int {
	switch n := p.mostBuckets(); {
	case fewest == single || n == 0:
		return none
	case n < fewest:
		return single
	default:
		return 2 * n
	}
}

// mostBuckets returns how many the stage has that has most.
func (p *Plan) mostBuckets() (most int) {
	seen, of := map[[3]int]bool{}, map[int]int{}
	for _, m := range p.Synchronization {
		if at := [3]int{m.Stage, m.First, m.Last}; !seen[at] {
			seen[at] = true
			of[m.Stage]++
			most = max(most, of[m.Stage])
		}
	}
	return most
}

// synchronize is Synchronize that sends sums in some way.
func synchronize(c *chain.Chain, p *Platform, plan *Plan, way sending) (*Plan, error) {
	bare := plan.bare()
	if !slices.ContainsFunc(plan.Stages, func(st Stage) bool { return len(st.Devices) > 1 }) {
		return bare, nil
	}
	l, err := arrangeBare(c, p, bare)
	if err != nil {
		return nil, err
	}
	if err := l.shards(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	if (&arranger{l}).findTies(); l.unfit != nil {
		return nil, l.unfit
	}
	stages := l.replicatedStages()
	if err := cmp.Or(divisionOf(l).takeTurns(stages), l.reachable(stages)); err != nil {
		return nil, err
	}
	if len(stages) == 0 || !l.sharded() && !l.synchronizable(stages) {
		return bare, nil
	}
	y := newSynchronizer(l, stages)
	y.sending = way
	longer, out := y.least(), bare
	messages := y.best(longer)
	if longer > 1 {
		longer, messages = y.sooner(longer, messages)
		out = bare.stretched(longer)
	}
	if out.Synchronization = y.list(messages, longer); !l.plan.Zero.dividesWeights() {
		return out, nil
	}
	return divisionOf(l).withWeights(out, stages)
}

// synchronizable reports whether sums of stages can be passed along their devices, and take time.
func (l *layout) synchronizable(stages []replicatedStage) (takesTime bool) {
	for _, x := range stages {
		for i, d := range x.line[1:] {
			beta := l.platform.Beta(x.line[i], d)
			if beta == 0 {
				return false
			}
			takesTime = takesTime || !math.IsInf(beta, 1)
		}
	}
	return takesTime
}

// synchronizer finds times for the messages of sums, in a plan with all starts and the period some times as long.
type synchronizer struct {
	*layout
	stages  []replicatedStage
	rounds  []gradients
	windows map[resource][]window
	load    float64 // the largest of a link in a period, with the messages of sums, seconds
	sending
}

// gradients are the gradients of a round of a stage.
type gradients struct {
	stage *replicatedStage
	last  int    // residue of its last minibatch
	made  []ripe // by device of the line
}

// ripe is when gradients are on a device: starts and lengths of the backwards that make them.
type ripe []backwardTime

type backwardTime struct {
	start, length float64
	whole         bool // nothing is known of the time within
}

// at returns when those of all layers are there but the ones whose backward takes so long, and comes last.
func (r ripe) at(longer, below float64) (at float64) {
	at = math.Inf(-1)
	for _, b := range r {
		end := b.start*longer + b.length
		if !b.whole {
			end -= below
		}
		at = max(at, end)
	}
	return at
}

func newSynchronizer(l *layout, stages []replicatedStage) *synchronizer {
	y := &synchronizer{layout: l, stages: stages, windows: newRouter(l).busy}
	loads := map[resource]float64{}
	for on, all := range y.windows {
		for _, w := range all {
			loads[on] += w.length
		}
	}
	for i := range stages {
		x := &stages[i]
		all := rounds(l.repeats, x.round)
		for _, round := range all {
			y.rounds = append(y.rounds, y.gradients(x, round))
		}
		for i, to := range x.line[1:] {
			if l.sharded() {
				break // of a plan with a flush, which is not stretched
			}
			seconds := float64(len(all)) * l.platform.Seconds(x.weights, x.line[i], to)
			loads[y.link(x.line[i], to)] += seconds
			loads[y.link(to, x.line[i])] += seconds
		}
	}
	for _, load := range loads {
		y.load = max(y.load, load)
	}
	return y
}

func (y *synchronizer) link(from, to int) resource {
	return y.resource(&job{kind: CF, from: from, to: to})
}

// gradients finds the backwards of a round.
func (y *synchronizer) gradients(x *replicatedStage, round []int) gradients {
	g := gradients{stage: x, last: round[len(round)-1], made: make([]ripe, len(x.line))}
	for _, r := range round {
		b := y.leaves(x.stage, r)
		i := slices.Index(x.line, b.device)
		g.made[i] = append(g.made[i], backwardTime{y.seconds(b.start), y.seconds(b.length), b.kind != B || y.timing(b) != nil})
	}
	return g
}

// least returns by how much a period must be stretched at least for the messages to find room; 1 for a flush plan.
func (y *synchronizer) least() (longer float64) {
	if y.period == nil {
		return 1
	}
	low, high := 0.0, max(1, y.load/y.plan.Period)
	for step := 0.01; !y.fits(high); step *= 2 {
		low, high = high, high+step
	}
	for low > 0 && high-low > 1e-3*high {
		if mid := (low + high) / 2; y.fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// periodLater is the cost, in periods, of an update that comes a period later.
const periodLater = 0.05

// sooner returns a period that is stretched somewhat more than it must be, with its messages, if that is worth it. On a link that is
// never free, sums of many buckets do not follow each other closely. Updates then come as many periods later as there are replicas.
func (y *synchronizer) sooner(least float64, messages []placedMessage) (longer float64, best []placedMessage) {
	cost := func(longer float64, messages []placedMessage) float64 {
		return longer + periodLater*y.end(messages, longer)/y.plan.Period
	}
	longer, best = least, messages
	for _, more := range []float64{1.01, 1.02, 1.05, 1.1, 1.2, 1.4} {
		if all := y.best(least * more); all != nil && cost(least*more, all) < cost(longer, best) {
			longer, best = least*more, all
		}
	}
	return longer, best
}

func (y *synchronizer) fits(longer float64) bool {
	for _, c := range y.choices() {
		if _, fits := y.place(c, longer); fits {
			return true
		}
	}
	return false
}

// choice is a way to send the sums.
type choice struct {
	buckets int  // of a stage, about; oneEach: one for each layer with weights
	late    bool // no message goes before all gradients of the device are there: messages follow each other without gaps
	parts   bool // buckets go in parts, of stages where that can be
}

// mostSums bounds the buckets of all stages and rounds that are tried, beyond one each; of parts their messages.
const mostSums = 1 << 12

const (
	oneEach = math.MaxInt32 // more buckets than any stage has layers
	single  = -1            // one bucket, and no more
)

// choices returns the choices with at least the fewest buckets or, if no stage can have so many, with the most that are
// possible.
func (y *synchronizer) choices() (all []choice) {
	most := y.mostLayers()
	if y.fewest == single {
		most = 1
	}
	for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, oneEach} {
		if n == oneEach && y.fewest <= 1 || n > most && n != oneEach {
			continue
		}
		few := min(n, most) * len(y.rounds)
		if y.plan.Zero.dividesWeights() && n > 1 {
			break // a stage has one bucket
		}
		possible := slices.DeleteFunc([]choice{{buckets: n}, {buckets: n, late: true}, {buckets: n, parts: true}}, func(c choice) bool {
			return c.late && y.period == nil || !c.parts && y.sharded() || !y.possible(c) || n > 1 && few*y.messages(c.parts) > mostSums
		})
		if len(possible) == 0 {
			continue
		}
		if len(all) > 0 && all[0].buckets < y.fewest {
			all = nil
		}
		all = append(all, possible...)
	}
	return all
}

// mostLayers returns how many layers the stage has that has most.
func (y *synchronizer) mostLayers() int {
	most := 1
	for _, x := range y.stages {
		most = max(most, y.plan.Stages[x.stage].Len())
	}
	return most
}

// worthwhile is the part of the period or makespan that more messages must save: their number costs what a plan does not count.
const worthwhile = 1e-3

// best returns the messages that end earliest or, where that is not worth them, fewer; nil where none fit.
func (y *synchronizer) best(longer float64) (best []placedMessage) {
	var all [][]placedMessage
	var ends []float64
	for _, c := range y.choices() {
		if messages, fits := y.place(c, longer); fits {
			all, ends = append(all, messages), append(ends, y.end(messages, longer))
		}
	}
	if len(ends) == 0 {
		return nil
	}
	enough := slices.Min(ends) + worthwhile*longer*y.seconds(y.span())
	for i, messages := range all {
		if ends[i] <= enough && (best == nil || len(messages) < len(best)) {
			best = messages
		}
	}
	return best
}

// end returns when the last message ends: of a periodic plan, behind the last backward of its round.
func (y *synchronizer) end(all []placedMessage, longer float64) (end float64) {
	made := map[*gradients]float64{}
	for _, m := range all {
		e := m.start + m.length
		if y.period != nil {
			if _, known := made[m.of]; !known {
				made[m.of] = m.of.all(longer)
			}
			e -= made[m.of]
		}
		end = max(end, e)
	}
	return end
}

// all returns when the last backward of the round ends.
func (g *gradients) all(longer float64) float64 {
	at := math.Inf(-1)
	for _, r := range g.made {
		at = max(at, r.at(longer, 0))
	}
	return at
}

// placedMessage is a message of a bucket with its time.
type placedMessage struct {
	of            *gradients
	first, last   int // layers
	part          int
	kind          SynchronizationKind
	from, to      int // devices
	start, length float64
}

// passage is the way of the sum of a bucket along its line and back.
type passage struct {
	of          *gradients
	first, last int
	bytes       int64
	below       float64 // seconds of its backward behind the gradients of the bucket
	hop         int     // the next message
	ready       float64 // when that can start
	number      int

	only *placedMessage // of a part: the one message that this is
}

// place returns the messages of a choice with their times; fits is false when there is none for one of them.
func (y *synchronizer) place(c choice, longer float64) (all []placedMessage, fits bool) {
	r := y.router(longer)
	reduces, fits := y.send(r, append(y.passages(c, longer), y.scattered(c)...), longer)
	if !fits || !c.parts {
		return reduces, fits
	}
	all, fits = y.send(r, y.gathered(c, reduces), longer)
	return append(reduces, all...), fits
}

// send gives the messages of some sums their times.
func (y *synchronizer) send(r *router, queue passages, longer float64) (all []placedMessage, fits bool) {
	for i, x := range queue {
		x.number = i
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		x := queue[0]
		m := x.message()
		m.length = y.platform.Seconds(x.bytes, m.from, m.to)
		due := math.Inf(1)
		if r.every > 0 {
			due = x.ready + r.every + m.length
		}
		on := y.link(m.from, m.to)
		if m.start, fits = r.find(&portalMessage{on: on, length: m.length, ready: x.ready, due: due}, false); !fits {
			return nil, false
		}
		r.take(on, window{m.start, m.length})
		all = append(all, m)
		if x.hop++; x.only != nil || x.hop == 2*len(x.of.stage.line)-2 {
			heap.Pop(&queue)
			continue
		}
		x.ready = max(m.start+m.length, x.own(longer))
		heap.Fix(&queue, 0)
	}
	return all, true
}

// router returns a router with the plan's own messages.
func (y *synchronizer) router(longer float64) *router {
	r := &router{layout: y.layout, eps: 1e-11 * y.seconds(y.span()) * longer, busy: maps.Clone(y.windows)}
	if y.period != nil {
		r.every = y.plan.Period * longer
	}
	for on, all := range r.busy {
		r.busy[on] = slices.Clone(all)
		for i := range all {
			r.busy[on][i].from *= longer
		}
	}
	return r
}

// passages returns the sums of a choice, ready for their first messages.
func (y *synchronizer) passages(c choice, longer float64) (all passages) {
	for i := range y.rounds {
		g := &y.rounds[i]
		if y.divides(g.stage, c) {
			continue
		}
		for _, b := range y.buckets(g.stage, c.buckets) {
			x := &passage{of: g, first: b[0], last: b[1], bytes: weights(y.chain, b[0], b[1])}
			if !c.late {
				x.below = y.behind(g.stage, b[0])
			}
			x.ready = max(g.made[0].at(longer, x.below), x.own(longer))
			all = append(all, x)
		}
	}
	return all
}

// buckets divides the layers of a stage, from the last one on, into about so many buckets of equal bytes: where layers end that is
// nearest.
func (y *synchronizer) buckets(x *replicatedStage, n int) (all [][2]int) {
	st := y.plan.Stages[x.stage]
	done, bytes := int64(0), int64(0) // of all buckets, and of all layers so far
	var b [2]int
	for i := st.Last; i >= st.First; i-- {
		w := y.chain.SummedWeights(i)
		if w == 0 {
			continue
		}
		if target := float64(done) + float64(x.weights)/float64(n); bytes > done && float64(bytes)+float64(w)/2 > target {
			all, done, b = append(all, b), bytes, [2]int{}
		}
		if b[0] = i; b[1] == 0 {
			b[1] = i
		}
		bytes += w
	}
	return append(all, b)
}

// message returns the next message of a sum: up the line, and then back.
func (x *passage) message() placedMessage {
	if x.only != nil {
		return *x.only
	}
	m := placedMessage{of: x.of, first: x.first, last: x.last, kind: Reduce}
	line := x.of.stage.line
	at, to := x.hop, x.hop+1
	if n := len(line) - 1; x.hop >= n {
		m.kind, at = Gather, 2*n-x.hop
		to = at - 1
	}
	m.from, m.to = line[at], line[to]
	return m
}

// own returns when the device that the next message goes to has gradients of its own to add; none behind the reduces.
func (x *passage) own(longer float64) float64 {
	if x.hop+1 >= len(x.of.stage.line) {
		return math.Inf(-1)
	}
	return x.of.made[x.hop+1].at(longer, x.below)
}

// passages are a heap of sums, the one whose next message is ready first in front.
type passages []*passage

func (q passages) Len() int      { return len(q) }
func (q passages) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q passages) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].ready, q[j].ready), q[i].number-q[j].number) < 0
}
func (q *passages) Push(x any) { *q = append(*q, x.(*passage)) }
func (q *passages) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// list writes messages down, stage by stage in the order of their starts.
func (y *synchronizer) list(all []placedMessage, longer float64) (out []Synchronization) {
	r := y.router(longer)
	for _, m := range all {
		start, shift := r.within(m.start, m.of.last)
		out = append(out, Synchronization{
			Kind: m.kind, Stage: m.of.stage.stage, First: m.first, Last: m.last, Part: m.part, From: m.from, To: m.to, Start: start, Shift: shift,
		})
	}
	slices.SortStableFunc(out, func(a, b Synchronization) int { return cmp.Or(a.Stage-b.Stage, cmp.Compare(a.Start, b.Start)) })
	return out
}
