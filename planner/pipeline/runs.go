package pipeline

import (
	"cmp"
	"slices"
)

// simulation is the runs of all tasks and what each waits for.
type simulation struct {
	*layout
	noise   Noise
	took    map[int]float64 // as in Replay
	depth   int             // periods from the first task of a minibatch to its last
	periods int             // how many times the pattern's tasks run
	runs    []*run
	by      [][]*run // by position of the task, then by period
	hub     *run     // that updates wait for; nil: nothing does
}

// run is one task for one minibatch.
type run struct {
	job        *job
	turn       int   // which of the runs of its task
	planned    ticks // start
	start, end float64
	length     float64
	factor     float64 // of the noise
	early      float64 // how much before its gradient it may start
	waits      int     // runs that it needs and that have not ended
	then       []need  // runs that need it
	before     *run    // on its resource; nil for the first
	done       bool
	// On shared processors, of a backward that recomputes: how many runs bring its gradient, whether it has recomputed, and from when to when it
	// waits for the gradient then.
	gradients  int
	recomputed bool
	paused     [2]float64
}

// need is a run that needs another one, and may start so much before that ends.
type need struct {
	run  *run
	lead float64
}

func wait(x, y *run, lead float64) {
	x.then = append(x.then, need{y, lead})
	y.waits++
}

// deadlock names a cycle of runs that wait for each other, found from the earliest one that did not run.
func (s *simulation) deadlock() error {
	needs := map[*run][]*run{}
	var stuck *run
	all := s.runs
	if s.hub != nil {
		all = append(slices.Clip(all), s.hub)
	}
	for _, r := range all {
		if r.done {
			continue
		}
		if stuck == nil || less(r.planned, stuck.planned) {
			stuck = r
		}
		for _, y := range r.then {
			needs[y.run] = append(needs[y.run], r)
		}
	}
	var path []*run
	seen := map[*run]int{}
	for {
		at, again := seen[stuck]
		if again {
			path = path[at:]
			break
		}
		seen[stuck] = len(path)
		path = append(path, stuck)
		stuck = slices.MinFunc(needs[stuck], func(a, b *run) int {
			return cmp.Or(queued(stuck, a)-queued(stuck, b), a.planned.Cmp(b.planned))
		})
	}
	path = slices.DeleteFunc(path, func(r *run) bool { return r == s.hub })
	e := &DeadlockError{Task: path[0].job.task}
	for _, r := range path {
		e.Cycle = append(e.Cycle, s.plan.nameOf(r.job.task, s.minibatch(r)))
	}
	return e
}

// queued is 1 when a run waits for another one only because that comes first on their resource.
func queued(r, x *run) int {
	if r.before == x {
		return 1
	}
	return 0
}

func (s *simulation) minibatch(r *run) int { return r.job.residue + r.turn*s.repeats }
