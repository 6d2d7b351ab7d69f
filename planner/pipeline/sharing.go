package pipeline

import (
	"container/heap"
	"math"
	"slices"
)

// sharing runs the tasks of devices that share processors for m ops at once (Platform.OpsAtOnce). A task that is ready waits until fewer than m
// others compute, and then runs to its end. Tasks that have waited longest come first. Since m need not be whole, the n tasks that compute share
// the processors equally: each has the rate min(1, m/n) of a device of its own. Messages take no processor. The shares are egalitarian processor
// sharing (Kleinrock, Time-shared systems: a theoretical treatment, Journal of the ACM 14, 1967).
//
// The executor runs tasks so. An op of the CPU holds one of the processors of Go's scheduler for as long as it lasts. There are as many of these
// as cores. In traces of plans with a flush, no more than two tasks of four devices ran at any instant on two cores. That held with one thread an
// op and with two.
//
// Since all rates are equal, one clock of work serves all tasks. It advances at the common rate. A task of length L that begins at work w ends at
// work w + L. So a simulation of n runs takes O(n log n).
type sharing struct {
	*simulation
	most      float64    // ops at once at full rate
	now, work float64    // seconds; seconds of work that a task has had that ran since the start
	active    int        // tasks that compute
	computing milestones // by work
	sending   milestones // by seconds
	waiting   []waiter   // tasks that are ready
	done      int
}

// milestone is a time, or an amount of work, at which a run ends or has made something that other runs wait for.
type milestone struct {
	at   float64
	then func()
}

type milestones []milestone

func (m milestones) Len() int           { return len(m) }
func (m milestones) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m milestones) Less(i, j int) bool { return m[i].at < m[j].at }
func (m *milestones) Push(x any)        { *m = append(*m, x.(milestone)) }
func (m *milestones) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// next returns the time or work of the first milestone; infinity where there is none.
func (m milestones) next() float64 {
	if len(m) == 0 {
		return math.Inf(1)
	}
	return m[0].at
}

func (m *milestones) add(at float64, then func()) {
	heap.Push(m, milestone{at, then})
}

// share gives every run its times on processors that the devices share. Errors: *DeadlockError.
func (s *simulation) share(most float64) error {
	x := &sharing{simulation: s, most: most}
	for _, r := range s.runs {
		for _, n := range r.then {
			if x.brings(r, n.run) {
				n.run.waits--
				n.run.gradients++
			}
		}
	}
	first := s.runs
	if s.hub != nil {
		first = append(first[:len(first):len(first)], s.hub)
	}
	for _, r := range first {
		if r.waits == 0 {
			x.begin(r)
		}
	}
	for x.step() {
	}
	if x.done < len(first) {
		return s.deadlock()
	}
	return nil
}

// brings reports whether a backward waits for a run only after it has recomputed.
func (x *sharing) brings(r, backward *run) bool {
	return backward.early > 0 && r != x.hub && brings(r.job, backward.job)
}

// step goes on to the next milestone, if there is one. All that happens at an instant is known before tasks are admitted then.
func (x *sharing) step() bool {
	if at, _ := x.next(); at > x.now*(1+instant) {
		x.admit()
	}
	at, queue := x.next()
	switch {
	case math.IsInf(at, 1):
		return false
	case queue == &x.computing:
		x.work = max(x.computing.next(), x.work)
	default:
		x.work += (at - x.now) * x.rate()
	}
	x.now = at
	heap.Pop(queue).(milestone).then()
	return true
}

// instant is the share of a time by which simultaneous milestones may differ from rounding.
const instant = 1e-12

// next returns the time of the next milestone, infinity where there is none, and where it is.
func (x *sharing) next() (at float64, queue *milestones) {
	at, queue = math.Inf(1), &x.computing
	if len(x.computing) > 0 {
		at = x.now + max(x.computing.next()-x.work, 0)/x.rate()
	}
	if sent := x.sending.next(); sent < at {
		return sent, &x.sending
	}
	return at, queue
}

// rate returns the rate of all tasks that compute.
func (x *sharing) rate() float64 { return min(1, x.most/float64(max(x.active, 1))) }

// begin starts a run whose resource is free. A backward that recomputes needs no gradient until it has.
func (x *sharing) begin(r *run) {
	switch {
	case r == x.hub || r.job.onLink():
		r.start = x.now
		x.sending.add(x.now+r.length, func() { x.end(r) })
	case r.early > 0:
		x.wait(r, func() {
			r.start = x.now
			x.compute(r.early, func() {
				r.paused = [2]float64{x.now, x.now}
				r.recomputed = true
				x.resume(r)
			})
		})
	default:
		x.wait(r, func() {
			r.start = x.now
			x.finish(r, r.length)
		})
	}
}

// waiter is a task that is ready and waits for a processor.
type waiter struct {
	run   *run
	since float64
	begin func()
}

// wait lets a task begin when a processor has room for it.
func (x *sharing) wait(r *run, begin func()) {
	x.waiting = append(x.waiting, waiter{r, x.now, begin})
}

// admit lets tasks begin while processors have room, those that have waited longest first, then those that the plan starts first.
func (x *sharing) admit() {
	for len(x.waiting) > 0 && float64(x.active) < x.most {
		first := 0
		for i, w := range x.waiting {
			if y := x.waiting[first]; w.since < y.since || w.since == y.since && less(w.run.planned, y.run.planned) {
				first = i
			}
		}
		w := x.waiting[first]
		x.waiting = slices.Delete(x.waiting, first, first+1)
		w.begin()
	}
}

// compute lets a task have an amount of work.
func (x *sharing) compute(length float64, then func()) {
	x.active++
	x.computing.add(x.work+length, func() {
		x.active--
		then()
	})
}

// resume goes on with a backward that has recomputed when its gradient is there.
func (x *sharing) resume(r *run) {
	if !r.recomputed || r.gradients > 0 {
		return
	}
	x.wait(r, func() {
		r.paused[1] = x.now
		x.finish(r, r.length-r.early)
	})
}

// finish runs the rest of a task. Runs that wait for a part of its work are told when that is done.
func (x *sharing) finish(r *run, length float64) {
	for _, n := range r.then {
		if n.lead > 0 && !x.brings(r, n.run) {
			x.computing.add(x.work+max(length-n.lead, 0), func() { x.tell(r, n.run) })
		}
	}
	x.compute(length, func() { x.end(r) })
}

// end tells all runs that wait for the end of one.
func (x *sharing) end(r *run) {
	r.end, r.done = x.now, true
	x.done++
	for _, n := range r.then {
		if n.lead == 0 || x.brings(r, n.run) {
			x.tell(r, n.run)
		}
	}
}

// tell lets a run no longer wait for another one.
func (x *sharing) tell(r, waiting *run) {
	if x.brings(r, waiting) {
		waiting.gradients--
		x.resume(waiting)
		return
	}
	if waiting.waits--; waiting.waits == 0 {
		x.begin(waiting)
	}
}

// opsAtOnce returns how many tasks of a plan's devices compute at full speed at once; 0 where each of these devices has a processor of its own.
func opsAtOnce(l *layout) float64 {
	used := usedDevices(l.plan)
	if most := l.platform.OpsAtOnce; most < float64(len(used)) {
		return most
	}
	return 0
}

// usedDevices returns the devices that hold a stage.
func usedDevices(p *Plan) map[int]bool {
	used := map[int]bool{}
	for _, st := range p.Stages {
		for _, d := range st.Devices {
			used[d] = true
		}
	}
	return used
}
