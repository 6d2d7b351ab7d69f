package cycle

import (
	"slices"

	"plimsoll/planner/chain"
)

// Run is a run of a cyclic plan from its first step to its last. The first step has nothing to do for ops with a prime. Behind the last one come
// the ops with a prime that belong to it. All copies of weights and state come with them: an update may need a fetch before it and leave a
// write behind it. All other ops of that step take no time, but keep their order. The weights that stay on the device are there before.
//
// A run of n steps takes First + (n-2) Period + Last seconds, where n is so large that the steady state is reached. Where a plan repeats after
// several steps, the last step is that of a run which ends as the steady state begins. Seconds is exact for every n.
type Run struct {
	First  float64 // from the start of the run to that of its second step, had the steady state begun with that
	Period float64
	Last   float64 // from the start of the last step to the end of all ops

	sim             *Simulator
	limits          Limits
	steady, repeats int // the step with whose start the steady state begins, and the steps after which it repeats
}

// NewRun judges a sequence and plays the ends of runs of it. Errors: those of NewSimulator and of Simulator.Run.
func NewRun(c *chain.Chain, seq Sequence, link Link, limits Limits) (*Run, error) {
	s, err := NewSimulator(c, link)
	if err != nil {
		return nil, err
	}
	if _, err := s.Run(seq, limits); err != nil {
		return nil, err
	}
	r := &Run{sim: s, limits: limits}
	p := r.load(0)
	if err := p.play(); err != nil {
		return nil, err
	}
	first, last := p.repetition()
	k, begun := s.costs.clock, s.costs.clock.seconds(first.now)
	r.steady, r.repeats = first.step, last.step-first.step
	r.Period, _ = k.exact(last.now-first.now, r.repeats).Float64()
	r.First = begun - float64(r.steady-1)*r.Period
	whole, err := r.play(r.steady + 1)
	r.Last = whole - begun
	return r, err
}

// Seconds returns how long a run of some steps takes, at least one. Errors: those of Simulator.Run.
func (r *Run) Seconds(steps int) (float64, error) {
	repeated := max(0, steps-1-r.steady) / r.repeats * r.repeats
	whole, err := r.play(steps - repeated)
	return whole + float64(repeated)*r.Period, err
}

// play plays a run of some steps to its end.
func (r *Run) play(steps int) (seconds float64, err error) {
	p := r.load(steps)
	if err := p.playAll(); err != nil {
		return 0, err
	}
	return r.sim.costs.clock.seconds(p.now), nil
}

// load prepares the player for a run of some steps; 0: it has no end.
func (r *Run) load(steps int) *player {
	p := &r.sim.player
	p.load(&r.sim.ledger, r.sim.costs.contention, r.sim.link.Duplex, r.limits)
	p.run = &ends{steps, slices.ContainsFunc(p.ledger.seq, func(o Op) bool { return o.Prime })}
	return p
}

// playAll plays a run to its end. Errors: *MemoryError, ErrNoSteadyState.
func (p *player) playAll() error {
	for i := range p.frees { // of the steps before the first
		p.free(int32(i))
	}
	for {
		p.endAll()
		for p.startFirst() {
		}
		p.contend()
		next, runs := p.nextEnd()
		switch {
		case runs && next <= 1<<61:
			p.now = next
		case runs:
			return ErrNoSteadyState
		case slices.ContainsFunc(p.queues[:], func(q queue) bool { return len(q.ops) > 0 && !p.run.over(q.step) }):
			return p.stuck()
		default:
			return nil
		}
	}
}
