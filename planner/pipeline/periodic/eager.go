package periodic

// eager: a simulation of PipeDream's runtime.
//
// Thesis, section 6.5: PipeDream's stages run with a greedy 1F1B strategy. For any NOAM, the period and the memory are seen only
// afterwards. Here each replica starts any task that it can as soon as it is free: a backward before a forward, the oldest minibatch first.
// A replica of the input stage admits a minibatch while fewer than NOAM of its own are in flight. Links are first come, first served.
// Minibatches go to replicas in turn, which do not wait for each other's gradients: a forward may miss an update more than in 1f1b. Once a
// run repeats itself it is folded into a pattern of k minibatches. Time: O(minibatches · stages · log).

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/events"
)

const (
	eagerRun     = 500 // minibatches, as in the thesis
	eagerPattern = 64  // minibatches of the longest pattern that is looked for
)

// ErrNoPattern means that an eager run does not settle into a pattern.
var ErrNoPattern = errors.New("the eager run does not repeat itself")

func solveEager(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	run, err := Eager(ctx, r, eagerRun)
	if err != nil {
		return nil, err
	}
	plan, err := run.fold()
	if err != nil {
		return nil, err
	}
	plan, err = pipeline.Finish("eager", r, plan)
	var small *pipeline.InfeasibleError
	if errors.As(err, &small) && small.Best != nil { // the run does not look at the memory: it needs what it needs
		for _, peak := range small.Best.PerDevicePeak {
			small.Smallest = max(small.Smallest, peak)
		}
	}
	return plan, err
}

// Run is an eager run.
type Run struct {
	Period float64 // seconds between two minibatches, the average of the middle half of the run
	NCA    []int   // of each stage, on one replica, over the whole run
	Bytes  []int64 // of each stage, on one replica

	problem *problem
	steps   []eagerStep
	start   [][]float64 // of step and minibatch
}

// eagerStep is F, CF or their backward counterparts of a virtual stage, in the order in which a minibatch passes them.
type eagerStep struct {
	kind    pipeline.Kind
	stage   int
	seconds func(m int) float64
}

// Eager runs a number of minibatches through the request's stages with r.Active in flight on each replica of the input
// stage (0: PipeDream's NOAM). It does not look at the memory. Errors: ErrStages, ErrOptions, the context's.
func Eager(ctx context.Context, r pipeline.Request, minibatches int) (*Run, error) {
	q, err := contiguousPipe(ctx, "eager", r)
	if err != nil {
		return nil, err
	}
	if err := q.problem.plain(); err != nil {
		return nil, err
	}
	if r.Active < 0 || minibatches < 4 {
		return nil, fmt.Errorf("%w: %d active minibatches of %d: give at least 1 of 4", ErrOptions, r.Active, minibatches)
	}
	e := newEager(q.problem, minibatches, cmp.Or(r.Active, warmUps(q.problem.stages, 0)[0]))
	e.run()
	return e.report(), nil
}

// eager is the state of a run: an event-driven simulation.
type eager struct {
	Run
	minibatches, noam int
	resource          map[[2]int]*queue // device d is {d, d}
	clock             events.Clock[job]
	flying            map[int]int // minibatches in flight, by device of the input stage
}

// queue is a resource with the work that waits for it.
type queue struct {
	busy bool
	work work
}

// job is a step of a minibatch.
type job struct {
	step, minibatch int
	ready           float64
}

func newEager(p *problem, minibatches, noam int) *eager {
	e := &eager{minibatches: minibatches, noam: noam, resource: map[[2]int]*queue{}, flying: map[int]int{}}
	e.problem = p
	last := len(p.stages) - 1
	for s := range p.stages {
		e.compute(pipeline.F, s)
		if s < last {
			e.transfer(pipeline.CF, s, p.Chain.Activation(p.stages[s].Last))
		}
	}
	for s := last; s >= 0; s-- {
		if s < last {
			e.transfer(pipeline.CB, s, p.Chain.Gradient(p.stages[s].Last))
		}
		e.compute(pipeline.B, s)
	}
	e.start = make([][]float64, len(e.steps))
	for x := range e.start {
		e.start[x] = make([]float64, minibatches)
	}
	return e
}

func (e *eager) compute(kind pipeline.Kind, s int) {
	st := e.problem.stages[s]
	seconds := e.problem.costs.Forward(st.First, st.Last)
	if kind == pipeline.B {
		seconds = e.problem.costs.Backward(st.First, st.Last)
	}
	e.steps = append(e.steps, eagerStep{kind, s, func(int) float64 { return seconds }})
}

func (e *eager) transfer(kind pipeline.Kind, s int, bytes int64) {
	x, y := e.problem.stages[s], e.problem.stages[s+1]
	e.steps = append(e.steps, eagerStep{kind, s, func(m int) float64 {
		return e.problem.Platform.Seconds(bytes, device(x, m), device(y, m))
	}})
}

// where returns the resource of a step of a minibatch.
func (e *eager) where(x, m int) [2]int {
	step := e.steps[x]
	d := device(e.problem.stages[step.stage], m)
	if !step.kind.Communication() {
		return [2]int{d, d}
	}
	next := device(e.problem.stages[step.stage+1], m)
	if step.kind == pipeline.CB {
		d, next = next, d
	}
	if d > next && !e.problem.Platform.Duplex {
		d, next = next, d
	}
	return [2]int{d, next}
}

func (e *eager) run() {
	for m := range e.minibatches {
		e.arrive(job{0, m, 0})
	}
	for ended := e.clock.Next(); len(ended) > 0; ended = e.clock.Next() {
		for _, d := range ended {
			e.finish(d)
		}
		for _, d := range ended {
			e.serve(e.where(d.step, d.minibatch))
			if d.step+1 < len(e.steps) {
				e.serve(e.where(d.step+1, d.minibatch))
			}
		}
	}
}

// arrive lets a job wait for its resource.
func (e *eager) arrive(j job) {
	at := e.where(j.step, j.minibatch)
	q := e.resource[at]
	if q == nil {
		q = &queue{work: work{e: e}}
		e.resource[at] = q
	}
	heap.Push(&q.work, j)
	if j.step == 0 && j.minibatch < len(e.problem.stages[0].Devices) {
		e.serve(at)
	}
}

// finish frees the resource of a job, and lets the next step of its minibatch wait.
func (e *eager) finish(j job) {
	e.resource[e.where(j.step, j.minibatch)].busy = false
	if j.step+1 < len(e.steps) {
		e.arrive(job{j.step + 1, j.minibatch, e.clock.Now})
		return
	}
	e.flying[device(e.problem.stages[0], j.minibatch)]--
}

// serve starts what a free resource can start.
func (e *eager) serve(at [2]int) {
	q := e.resource[at]
	if q.busy || len(q.work.jobs) == 0 {
		return
	}
	next := q.work.jobs[0]
	if next.step == 0 {
		if e.flying[at[0]] >= e.noam {
			return
		}
		e.flying[at[0]]++
	}
	heap.Pop(&q.work)
	q.busy = true
	e.start[next.step][next.minibatch] = e.clock.Now
	e.clock.Start(next, e.steps[next.step].seconds(next.minibatch))
}

// work is the queue of a resource: on a device backwards first and then the oldest minibatch, on a link in order of
// arrival.
type work struct {
	e    *eager
	jobs []job
}

func (w work) Len() int      { return len(w.jobs) }
func (w work) Swap(i, j int) { w.jobs[i], w.jobs[j] = w.jobs[j], w.jobs[i] }
func (w work) Less(i, j int) bool {
	a, b := w.jobs[i], w.jobs[j]
	if w.e.steps[a.step].kind.Communication() {
		return cmp.Or(cmp.Compare(a.ready, b.ready), b.step-a.step, a.minibatch-b.minibatch) < 0
	}
	return cmp.Or(b.step-a.step, a.minibatch-b.minibatch) < 0
}
func (w *work) Push(x any) { w.jobs = append(w.jobs, x.(job)) }
func (w *work) Pop() any {
	last := w.jobs[len(w.jobs)-1]
	w.jobs = w.jobs[:len(w.jobs)-1]
	return last
}

// report measures a run that has ended.
func (e *eager) report() *Run {
	r := &e.Run
	last := len(e.steps) - 1
	from, to := e.minibatches/4, e.minibatches-1-e.minibatches/4
	r.Period = (e.start[last][to] - e.start[last][from]) / float64(to-from)
	for s, st := range e.problem.stages {
		live := 0
		for replica := range st.Devices {
			live = max(live, r.live(s, replica, len(st.Devices)))
		}
		r.NCA = append(r.NCA, live)
		r.Bytes = append(r.Bytes, e.problem.bytes(s, live))
	}
	return r
}

// live returns the most minibatches that are live on one replica.
func (r *Run) live(s, replica, replicas int) (most int) {
	var f, b int
	for x, step := range r.steps {
		if step.stage == s && step.kind == pipeline.F {
			f = x
		}
		if step.stage == s && step.kind == pipeline.B {
			b = x
		}
	}
	first := replica // the oldest that may still be live when m starts; backwards end in the order of minibatches
	for m := replica; m < len(r.start[f]); m += replicas {
		for first < m && fits(r.start[b][first]+r.steps[b].seconds(first), r.start[f][m]) {
			first += replicas
		}
		most = max(most, (m-first)/replicas+1)
	}
	return most
}

// fold makes a pattern of the run's second half, once that repeats itself. Errors: ErrNoPattern.
func (r *Run) fold() (*pipeline.Plan, error) {
	total, repeats := len(r.start[0]), newPipe(r.problem).repeats
	flying := 0
	for s, st := range r.problem.stages {
		flying = max(flying, r.NCA[s]*len(st.Devices))
	}
	for k := repeats; k <= max(eagerPattern, repeats); k += repeats {
		// The last minibatches run out of company, and a pattern must hold for all that are in flight together.
		from := ((total-flying)/k - 2) * k
		if back := from - (flying/k+2)*k; back >= 0 {
			if period, ok := r.repeated(back, from, k); ok {
				return r.pattern(from, k, period), nil
			}
		}
	}
	return nil, fmt.Errorf("%w within %d minibatches, in patterns of at most %d: take another NOAM", ErrNoPattern, total, eagerPattern)
}

// repeated reports whether, from some minibatch to another one, each runs like the one k before it, a period later.
func (r *Run) repeated(back, from, k int) (period float64, ok bool) {
	period = r.start[0][from+k] - r.start[0][from]
	if !(period > 0) {
		return 0, false
	}
	for x := range r.steps {
		for m := back; m < from+k; m++ {
			if math.Abs(r.start[x][m+k]-r.start[x][m]-period) > 1e-11*period*float64(len(r.start[0])) {
				return 0, false
			}
		}
	}
	return period, true
}

func (r *Run) pattern(from, k int, period float64) *pipeline.Plan {
	p := r.problem.need.Plan(r.problem.stages)
	p.Period, p.MinibatchesPerPeriod = period, k
	f := NewFolder(p)
	for m := range k {
		for x, step := range r.steps {
			owner := r.problem.stages[step.stage]
			if step.kind == pipeline.CB {
				owner = r.problem.stages[step.stage+1]
			}
			if step.kind.Communication() && step.seconds(from+m) == 0 {
				continue
			}
			f.Add(step.kind, step.stage, device(owner, from+m), r.start[x][from+m]-r.start[0][from], m)
		}
	}
	f.Finish()
	return p
}
