package residency

import (
	"math"
	"math/rand/v2"
	"slices"

	"plimsoll/planner/schedule"
)

const (
	islands  = 4
	restarts = 3 // of the search, from the same plans on, at most
	// Auto times sequences of so many compute ops in all, but neither more nor fewer sequences than these; and polishes for a part of them.
	searchedOps              = 2_000_000
	fewestTrials, mostTrials = 200, 6000
	polishedOf               = 3
	fewestPolished           = 40
)

// search looks for a plan.
type search struct {
	trials
	mutator mutator
}

func newSearch(p *problem) *search {
	return &search{trials{problem: p}, mutator{problem: p, random: rand.New(rand.NewPCG(1, 2))}}
}

// search times the plans of all named strategies, changes the best of them at random, and then moves single ops. It is a local search: the
// same request has the same plan, because the random numbers are.
func (s *search) search() error {
	s.budget = math.MaxInt
	for _, x := range named() {
		x.run(&s.trials)
	}
	s.mutator.listOrders()
	s.begin()
	if len(s.elite) == 0 {
		return s.ctx.Err()
	}
	count, rounds := s.effort()
	start := s.elite
	for k := range rounds {
		before := s.best
		s.evolve(start, count)
		s.polish(max(count/polishedOf, fewestPolished))
		if k > 0 && before != nil && s.best == before { // a second way to plans no better
			break
		}
	}
	return s.ctx.Err()
}

// evolve changes plans apart from each other for one half of the trials, on islands, and then together.
func (s *search) evolve(start []*candidate, trials int) {
	var best []*candidate
	for k := range islands {
		s.elite = nil
		for i := k; i < len(start); i += islands {
			s.elite = append(s.elite, start[i])
		}
		s.steps(trials / (2 * islands))
		best = append(best, s.elite...)
	}
	s.elite = nil
	for _, x := range best {
		s.admit(x)
	}
	s.steps(trials / 2)
}

// steps changes the best plans so many times.
func (s *search) steps(trials int) {
	s.budget = s.evaluated + trials
	for len(s.elite) > 0 && !s.over() {
		s.step()
	}
}

// effort returns the sequences of a round of search, and the rounds.
func (s *search) effort() (trials, rounds int) {
	ops := len(s.elite[0].choice.order.ops)
	if trials = s.request.Evaluations; trials > 0 {
		return trials, 1
	}
	if s.n <= shortChain {
		return mostTrials / restarts, restarts
	}
	trials = min(max(searchedOps/ops, fewestTrials), mostTrials)
	return trials, min(max(searchedOps/(trials*ops), 1), restarts)
}

// begin tries every order with updates on the device, on the host, on both, and in the next step.
func (s *search) begin() {
	for _, o := range s.mutator.orders {
		if s.ctx.Err() != nil || s.best != nil && o.total >= s.best.period {
			continue
		}
		for way := range 4 {
			x := s.blank(o)
			x.moves = [itemKinds]bool{true, true, true, true}
			s.updateOnHost(x, func(l int) bool { return way == 1 || way == 2 && l%2 == 0 })
			for _, l := range s.owners {
				if way == 3 {
					x.delay[l] = len(o.ops) // just before the layer's next forward
				}
			}
			s.try(x, Auto)
			y := x.copied()
			y.moves[activationItem], y.policy.reserve = false, 1
			s.try(y, Auto)
		}
	}
}

// step changes one of the best plans.
func (s *search) step() {
	k := min(s.mutator.random.IntN(len(s.elite)), s.mutator.random.IntN(len(s.elite)))
	parent := s.elite[k]
	x := parent.choice.copied()
	for range 1 + s.mutator.random.IntN(3) {
		s.mutator.mutate(x)
	}
	if s.best != nil && x.order.total >= s.best.period && x.order != parent.choice.order {
		s.evaluated++ // so that the search ends
		return
	}
	s.try(x, parent.from)
}

// polish moves single ops of the best plans, as long as that is better.
func (s *search) polish(trials int) {
	elite := slices.DeleteFunc(slices.Clone(s.elite), func(x *candidate) bool { return x.seq == nil })
	for i, x := range elite {
		s.budget = s.evaluated + trials/min(len(elite), 4)
		if i >= 4 && len(x.seq) > 100 {
			break
		}
		s.polishOne(x)
	}
}

func (s *search) polishOne(x *candidate) {
	for better := true; better && !s.over(); {
		better = false
		for _, i := range s.mutator.random.Perm(len(x.seq)) {
			if op := x.seq[i]; !op.Kind.OfState() && !op.Kind.Transfer() {
				continue
			}
			if y := s.shift(x, i); y.better(x) {
				x, better = y, true
				break
			}
		}
	}
}

// shift moves an op, alone or with the drop behind it, to other places, and returns the best plan; nil: none is legal.
func (s *search) shift(x *candidate, i int) (best *candidate) {
	for size := 1; size <= 2 && i+size <= len(x.seq); size++ {
		if size == 2 && !isDrop(x.seq[i+1].Kind) {
			break
		}
		for j := 0; j+size <= len(x.seq); j++ {
			if s.over() {
				return best
			}
			if j == i {
				continue
			}
			if y := s.timeMoved(x, i, j, size); y.better(best) {
				best = y
			}
		}
	}
	return best
}

// timeMoved times a plan in which ops from i on stand from j on.
func (s *search) timeMoved(x *candidate, i, j, size int) *candidate {
	seq := slices.Clone(x.seq)
	moved := slices.Clone(seq[i : i+size])
	seq = slices.Insert(slices.Delete(seq, i, i+size), j, moved...)
	s.prime(seq)
	if s.sim.Verify(seq, s.limits) != nil {
		return nil
	}
	return s.time(seq, x.from)
}

func isDrop(k schedule.Kind) bool { return k == schedule.DropWeights || k == schedule.DropState }
