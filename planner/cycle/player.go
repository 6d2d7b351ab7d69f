package cycle

import (
	"cmp"

	"plimsoll/planner/chain"
)

// player plays steps of a judged sequence until the state repeats.
type player struct {
	ledger     *ledger
	contention *chain.Contention // nil: nothing slows anything
	duplex     bool
	limit      int64
	mostSteps  int

	together, equal int64 // ticks: see tolerate

	run *ends // nil: steps have neither a beginning nor an end

	tasks  []entry
	waits  []dependency
	frees  []release
	freers [][]int32 // by position: the releases that its end may complete
	queues [streams]queue

	now int64
	memory
	begun  int // the step whose first compute op has started last
	states []snapshot
	starts []played
	result Result
}

// memory is the bytes in use, and the most so far.
type memory struct {
	used, hostUsed int64
	resident       int64 // when a step begins
	hostPeak, peak int64
	peakAt         instance
}

// entry is a task with its place in the queues. No queue has a drop, and nothing waits for one.
type entry struct {
	*task
	stream Stream
	rank   int32 // in the queue
	before int32 // compute ops before it in the sequence
}

// queue is the ops of one stream, step after step.
type queue struct {
	ops            []int32 // positions, of one step
	step, rank     int     // of the next op to start
	started, ended int     // in all steps
	running        int64   // when the op that runs ends; idle: none runs
	pace
}

const idle = -1

// next returns the position of the next op to start.
func (q *queue) next() int { return int(q.ops[q.rank]) }

// dependency is an op of this step, or of the one before, that must have ended.
type dependency struct {
	stream Stream
	before bool // of the step before
	rank   int32
}

// release is bytes that are free when all of its waits have ended.
type release struct {
	bytes int64
	waits [3]dependency
	count int
	step  int // the next step whose bytes are freed
}

// instance is an op in a step.
type instance struct{ step, position int }

// played is an op that was started, with the bytes in use from then on.
type played struct {
	instance
	at, end, used int64
}

// snapshot is everything that the rest of a run depends on, when the first compute op of a step has started. How long something still takes says
// how much of it is left, as what runs beside it says how fast it goes on.
type snapshot struct {
	key  [2 + streams]int64 // bytes in use, and ops that were started beside those of the step
	left [streams]int64     // ticks until what runs ends; idle: none runs
	step int
	now  int64
}

// pace is how fast the op that a stream runs goes on.
type pace struct {
	left   float64 // ticks that it would take alone, from since on
	since  int64
	slower float64 // how many times as long it takes
	played int     // in player.starts
}

// Rounded rates leave differences where ops slow each other. The constants are tolerances, as parts of the sum of a step's durations. Ops
// that end within the shorter part end together, and states that differ by less than the longer one are equal.
const (
	togetherPart = 1 << 30
	equalPart    = 1 << 20
)

// mostSteps is the number of steps after which a plan whose state has not repeated has no steady state.
const mostSteps = 1000

// load prepares the ops of a judged sequence.
func (p *player) load(l *ledger, k *chain.Contention, duplex bool, limits Limits) {
	p.contention, p.run = k, nil
	p.ledger, p.duplex, p.limit, p.mostSteps = l, duplex, limits.Memory, cmp.Or(limits.Steps, mostSteps)
	for s := range p.queues {
		p.queues[s] = queue{ops: p.queues[s].ops[:0], running: idle}
	}
	p.tasks = p.tasks[:0]
	total := int64(0)
	for i := range l.tasks {
		total += l.tasks[i].ticks
		e := entry{task: &l.tasks[i], before: int32(len(p.queues[Compute].ops))}
		if s, runs := StreamOf(l.seq[i].Kind); runs {
			if !duplex && s == ToHost {
				s = ToDevice
			}
			q := &p.queues[s]
			e.stream, e.rank = s, int32(len(q.ops))
			q.ops = append(q.ops, int32(i))
		}
		p.tasks = append(p.tasks, e)
	}
	p.tolerate(total)
	p.waits = p.waits[:0]
	for _, r := range l.waits {
		p.waits = append(p.waits, p.resolve(r))
	}
	p.loadFrees()
	p.starts, p.states = p.starts[:0], p.states[:0]
	p.now, p.begun = 0, -1
	used, host := l.residentBytes()
	p.memory = memory{used, host, used, host, used, instance{-1, -1}}
}

// tolerate sets by how much instants may differ, of a plan whose ops take so many ticks together.
func (p *player) tolerate(ticks int64) {
	p.together, p.equal = 0, 0
	if p.contention != nil {
		p.together, p.equal = ticks/togetherPart, ticks/equalPart
	}
}

// resolve turns an op of the two steps of a replay into a wait of the second.
func (p *player) resolve(r ref) dependency {
	n := len(p.tasks)
	e := &p.tasks[int(r)%n]
	return dependency{e.stream, int(r) < n, e.rank}
}

// loadFrees lists, by op, what its end may free.
func (p *player) loadFrees() {
	p.frees = p.frees[:0]
	p.freers = append(p.freers[:0], make([][]int32, len(p.tasks))...)
	for i, f := range p.ledger.frees {
		r := release{bytes: f.bytes}
		for _, hold := range f.holds {
			if hold == none {
				continue
			}
			r.waits[r.count] = p.resolve(hold)
			r.count++
			at := int(hold) % len(p.tasks)
			p.freers[at] = append(p.freers[at], int32(i))
		}
		p.frees = append(p.frees, r)
	}
}
