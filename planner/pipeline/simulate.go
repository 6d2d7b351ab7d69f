package pipeline

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/big"
	"slices"

	"plimsoll/planner/chain"
)

// Simulate runs a plan's tasks in the order that it gives to each device and each link. Every task starts as soon as the one
// before it on its resource and all its inputs have ended. A backward that recomputes starts earlier, so that its
// recomputation ends when its gradient comes. Start times matter for that order only. So a plan that Check accepts is,
// without noise, never later than its own times. With any noise it needs no more memory.
//
// Devices that share processors (Platform.OpsAtOnce) share them as sharing says.
//
// The ops of a plan for one device run by the rules of schedule.Simulate, each with a factor of its own; its errors are those of
// schedule.Simulate and ErrPlatform.
//
// A periodic plan begins with minibatch 0 in an empty pipeline; its figures are those of the steady state. Errors:
// *DeadlockError; those of Check up to RuleBoundary; ErrPlan.
func Simulate(c *chain.Chain, p *Platform, plan *Plan, n Noise) (*Outcome, error) {
	if !(n.Fraction >= 0 && n.Fraction <= 1) || n.Periods < 0 {
		return nil, fmt.Errorf("%w: noise of a fraction %g over %d periods: the fraction is 0 to 1, the periods 0 or more", ErrPlan, n.Fraction, n.Periods)
	}
	switch {
	case plan.IsCycle():
		return simulateCycle(c, p, plan, n)
	case plan.RunsSequence():
		return simulateSequence(c, p, plan, n)
	}
	return simulateTasks(c, p, plan, &simulation{noise: n})
}

// Replay simulates a plan of tasks with measured times. Map took has seconds by the position of a task in the plan; messages between
// replicas follow all tasks. A task without an entry takes its cost. The difference between Simulate and Replay is the cost of slow tasks;
// the difference between Replay and the run is the cost of waits. Measured times contain what devices lose to each other on shared
// processors, so Replay does not share them. Errors: those of Simulate; ErrPlan for a plan without tasks.
func Replay(c *chain.Chain, p *Platform, plan *Plan, took map[int]float64) (*Outcome, error) {
	if plan.IsCycle() || plan.RunsSequence() {
		return nil, fmt.Errorf("%w: %s has no tasks to replay: its ops run one by one on one device", ErrPlan, plan.Strategy)
	}
	return simulateTasks(c, p, plan, &simulation{took: took})
}

// simulateTasks simulates a plan of tasks, as the noise and the measured times of a simulation say.
func simulateTasks(c *chain.Chain, p *Platform, plan *Plan, s *simulation) (*Outcome, error) {
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	if err := s.play(l); err != nil {
		return nil, err
	}
	return s.outcome(), nil
}

// play gives every run of a layout its times. Errors: *DeadlockError; ErrPlan for a plan that is too long.
func (s *simulation) play(l *layout) error {
	s.layout, s.depth, s.periods, s.by = l, 1, 1, make([][]*run, len(l.plan.Tasks)+len(l.plan.Synchronization))
	if l.period != nil {
		if err := s.length(); err != nil {
			return fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	s.instances()
	if most := opsAtOnce(l); most > 0 && s.took == nil {
		return s.share(most)
	}
	return s.run()
}

const (
	mostRuns      = 1 << 22 // bounds a simulation's memory
	steadyPeriods = 64      // between filling and draining; three quarters of them are measured
)

// length decides how many periods run: as many as a minibatch needs, twice, and enough in between to measure.
func (s *simulation) length() error {
	first, last := s.jobs[0].start, s.jobs[0].end()
	for _, j := range s.jobs {
		if less(j.start, first) {
			first = j.start
		}
		if end := j.end(); less(last, end) {
			last = end
		}
	}
	depth := periods(sub(last, first), s.period)
	most := int64(mostRuns / len(s.jobs))
	if s.noise.Periods > int(most) || big.NewInt(most/4).Cmp(depth) <= 0 {
		return fmt.Errorf("%d tasks over %d periods, with minibatches in flight for %v of them, are too many to simulate", len(s.jobs), s.noise.Periods, depth)
	}
	s.depth = int(depth.Int64()) + 1
	if s.periods = s.noise.Periods; s.periods == 0 {
		s.periods = 2*s.depth + steadyPeriods
	}
	return nil
}

// instances makes the runs, their waits and the order of every resource.
func (s *simulation) instances() {
	for _, j := range s.jobs {
		length, planned := s.seconds(j.length), j.start
		for i := range s.periods {
			factor := s.factor(j, i)
			r := &run{job: j, turn: i, length: length * factor, factor: factor, early: s.seconds(j.early) * factor, planned: planned}
			s.by[j.task] = append(s.by[j.task], r)
			s.runs = append(s.runs, r)
			if s.period != nil {
				planned = add(planned, s.period)
			}
		}
	}
	s.before(func(x, y *job) {
		lead := s.seconds(s.lead(x, y))
		for i, r := range s.by[y.task] {
			by := s.by[x.task][i] // whose work the lead is
			if brings(x, y) {
				by = r
			}
			wait(s.by[x.task][i], r, lead*by.factor)
		}
	})
	s.hubs()
	for _, queue := range s.inOrder() {
		var last *run
		for _, r := range s.unroll(queue) {
			if r.before = last; last != nil {
				wait(last, r, 0)
			}
			last = r
		}
	}
}

// unroll returns the runs of what a resource does, period by period, in order.
func (s *simulation) unroll(queue []entry) (all []*run) {
	first, last := queue[0].later, queue[0].later
	for _, q := range queue {
		first, last = min(first, q.later), max(last, q.later)
	}
	for period := first; period < last+s.periods; period++ {
		for _, q := range queue {
			if i := period - q.later; i >= 0 && i < s.periods {
				all = append(all, s.by[q.job.task][i])
			}
		}
	}
	return all
}

// hubs lets the messages of new weights wait for all that updates wait for. A hub is a run of no job that stands for that.
func (s *simulation) hubs() {
	if len(s.divided) == 0 {
		return
	}
	of := &job{task: None}
	s.hub = &run{job: of, planned: s.lastFinal().end()}
	at := func(j *job) *run {
		if j == of {
			return s.hub
		}
		return s.by[j.task][0]
	}
	s.behindAll(of, func(x, y *job) { wait(at(x), at(y), 0) })
}

// factor returns how many times its cost a run takes. Noise depends on the task, the run and the seed alone.
func (s *simulation) factor(j *job, turn int) float64 {
	if took, ok := s.took[j.task]; ok {
		if cost := s.seconds(j.length); cost > 0 {
			return took / cost
		}
	}
	return s.noise.factor(j.task, turn)
}

// run gives every run its times. Errors: *DeadlockError.
func (s *simulation) run() error {
	var ready readyRuns
	for _, r := range s.runs {
		if r.waits == 0 {
			ready = append(ready, r)
		}
	}
	heap.Init(&ready)
	done := 0
	for len(ready) > 0 {
		r := heap.Pop(&ready).(*run)
		if r != s.hub {
			done++
		}
		r.end, r.done = r.start+r.length, true
		for _, n := range r.then {
			y := n.run
			y.start = max(y.start, r.end-n.lead)
			if y.waits--; y.waits == 0 {
				heap.Push(&ready, y)
			}
		}
	}
	if done < len(s.runs) {
		return s.deadlock()
	}
	return nil
}

// readyRuns are runs that wait for nothing, by their starts and then by the plan's.
type readyRuns []*run

func (q readyRuns) Len() int      { return len(q) }
func (q readyRuns) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q readyRuns) Less(i, j int) bool {
	return q[i].start < q[j].start || q[i].start == q[j].start && less(q[i].planned, q[j].planned)
}
func (q *readyRuns) Push(x any) { *q = append(*q, x.(*run)) }
func (q *readyRuns) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (s *simulation) outcome() *Outcome {
	o := &Outcome{}
	for _, r := range s.runs {
		o.Makespan = max(o.Makespan, r.end)
		o.Spans = append(o.Spans, Span{r.job.task, s.minibatch(r), r.start, r.end, r.early})
	}
	slices.SortStableFunc(o.Spans, byTime)
	o.Makespan = s.withSimulatedTies(o.Makespan)
	o.PerMinibatch = o.Makespan / float64(s.repeats)
	from, to, periods := s.window(o.Makespan)
	if s.period != nil {
		o.Period = (to - from) / float64(periods)
		o.PerMinibatch = o.Period / float64(s.repeats)
	}
	o.Bubble = s.bubble(from, to)
	o.PerDevicePeak = s.peaks()
	return o
}

// withSimulatedTies returns the makespan of a simulation with the messages of weights that stages share; span is that without.
func (s *simulation) withSimulatedTies(span float64) float64 {
	return exchangeTied(s.layout, span, tieTimes[float64]{
		end: func(j *job) float64 { return s.by[j.task][0].end }, length: s.platform.Seconds,
		add: func(x, y float64) float64 { return x + y }, less: func(x, y float64) bool { return x < y },
	})
}

// window returns the time that figures of a run hold for, and how many periods end in it. With a flush it is the whole step, else a part of the
// steady state.
func (s *simulation) window(makespan float64) (from, to float64, periods int) {
	if s.period != nil {
		return s.steady()
	}
	return 0, makespan, 1
}

// steady returns a time in the steady state and how many periods end in it. The last minibatches are left out: they meet
// no new ones behind them.
func (s *simulation) steady() (from, to float64, periods int) {
	ends := make([]float64, s.periods) // of all minibatches of a period
	for _, r := range s.runs {
		ends[r.turn] = max(ends[r.turn], r.end)
	}
	last := max(s.periods-s.depth-1, 0)
	first := min(s.depth+(last-s.depth)/4, last-1)
	if first < 0 {
		return 0, ends[last], last + 1
	}
	return ends[first], ends[last], last - first
}

// bubble returns the idle fraction of the devices that hold a stage, within a time.
func (s *simulation) bubble(from, to float64) float64 {
	used, busy := usedDevices(s.plan), 0.0
	for _, seconds := range s.busy(from, to) {
		busy += seconds
	}
	if all := float64(len(used)) * (to - from); all > 0 {
		return 1 - busy/all
	}
	return 0
}

// idlePerDevice returns the idle fraction of each device that holds a stage, within the time that figures hold for; 0 of others.
func (s *simulation) idlePerDevice(makespan float64) []float64 {
	from, to, _ := s.window(makespan)
	busy := s.busy(from, to)
	idle := make([]float64, len(busy))
	for d := range usedDevices(s.plan) {
		if to > from {
			idle[d] = 1 - busy[d]/(to-from)
		}
	}
	return idle
}

// busy returns the seconds in which each device computes, within a time.
func (s *simulation) busy(from, to float64) []float64 {
	busy := make([]float64, s.platform.Devices)
	for _, r := range s.runs {
		if !r.job.onLink() {
			busy[r.job.device] += within(r.start, r.end, from, to) - within(r.paused[0], r.paused[1], from, to)
		}
	}
	return busy
}

// within returns how much of the time from a to b lies between two others.
func within(a, b, from, to float64) float64 { return max(0, min(b, to)-max(a, from)) }

// peaks returns the most that every device holds at an instant.
func (s *simulation) peaks() []int64 {
	costs := NewCosts(s.chain)
	edges := s.edges(costs)
	var tops []*peak
	for d := range s.platform.Devices {
		tops = append(tops, climb(newLevel(len(s.plan.Stages)), sorted(edges[d], cmp.Compare[float64])))
	}
	out, count := make([]int64, len(tops)), account{s.layout}
	for d, top := range tops {
		weights, buffers := count.static(costs, d, top.live, count.nca(tops)[0])
		out[d] = total(weights, buffers, top)
	}
	return out
}

// edges returns when every device begins and ceases to hold something; see check.stays.
func (s *simulation) edges(costs *Costs) [][]edge[float64] {
	all := make([][]edge[float64], s.platform.Devices)
	stay := func(x *job, stage int, bytes int64, from, to func(i int) float64) {
		h := &hold{bytes, stage, x.task}
		for i := range s.periods {
			if a, b := from(i), to(i); a < b || a == b && stage != None {
				all[x.device] = append(all[x.device], edge[float64]{a, enters, h}, edge[float64]{b, leaving(a == b), h})
			}
		}
	}
	start := func(j *job) func(int) float64 { return func(i int) float64 { return s.by[j.task][i].start } }
	end := func(j *job) func(int) float64 { return func(i int) float64 { return s.by[j.task][i].end } }
	for n, st := range s.plan.Stages {
		for r := range s.repeats {
			f, b := s.at[place{F, n, r}], s.at[place{B, n, r}]
			stay(f, n, s.held(costs, n), start(f), end(s.leaves(n, r)))
			if n+1 < len(s.plan.Stages) && !s.crosses(n, r) {
				next, after := s.at[place{F, n + 1, r}], s.at[place{B, n + 1, r}]
				stay(f, None, s.chain.Activation(st.Last)-s.passing(n), end(f), start(next))
				stay(after, None, s.chain.Gradient(st.Last)-s.passing(n), end(after), start(b))
			}
		}
	}
	return all
}

// Timed returns a copy of a flush plan in which everything starts as soon as the order of the plan's starts allows, with
// the times of chain and platform. Each device has a processor of its own. Errors: those of Simulate.
func Timed(c *chain.Chain, p *Platform, plan *Plan) (*Plan, error) {
	if !plan.IsFlush() {
		return nil, fmt.Errorf("%w: only flush plans can be timed from their order", ErrPlan)
	}
	alone := *p
	alone.OpsAtOnce = 0
	o, err := Simulate(c, &alone, plan, Noise{})
	if err != nil {
		return nil, err
	}
	timed := *plan
	timed.Tasks, timed.Synchronization = slices.Clone(plan.Tasks), slices.Clone(plan.Synchronization)
	for _, s := range o.Spans {
		*timed.start(s.Task) = s.Start
	}
	timed.Predicted.Makespan = o.Makespan
	return &timed, nil
}
