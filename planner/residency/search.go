package residency

import (
	"math"
	"math/rand/v2"
	"slices"

	"plimsoll/planner/cycle"
)

const (
	eliteSize = 12
	islands   = 4
	restarts  = 3 // of the search of a short chain, from the same plans on
	// Auto times sequences of so many compute ops in all, but neither more nor fewer sequences than these; and polishes for a part of them.
	searchedOps              = 2_000_000
	fewestTrials, mostTrials = 200, 6000
	polishedOf               = 3
	fewestPolished           = 40
)

// search times the plans of all named strategies, changes the best of them at random, and then moves single ops. It is a local search: the
// same request has the same plan, because the random numbers are.
func (p *problem) search() error {
	p.random = rand.New(rand.NewPCG(1, 2))
	p.budget = math.MaxInt
	for _, s := range named() {
		s.run(p)
	}
	p.listOrders()
	p.begin()
	if len(p.elite) == 0 {
		return p.ctx.Err()
	}
	trials, rounds := p.effort()
	start := p.elite
	for range rounds {
		p.evolve(start, trials)
		p.polish(max(trials/polishedOf, fewestPolished))
	}
	return p.ctx.Err()
}

// evolve changes plans apart from each other for one half of the trials, on islands, and then together.
func (p *problem) evolve(start []*candidate, trials int) {
	var best []*candidate
	for k := range islands {
		p.elite = nil
		for i := k; i < len(start); i += islands {
			p.elite = append(p.elite, start[i])
		}
		p.steps(trials / (2 * islands))
		best = append(best, p.elite...)
	}
	p.elite = nil
	for _, x := range best {
		p.admit(x)
	}
	p.steps(trials / 2)
}

// steps changes the best plans so many times.
func (p *problem) steps(trials int) {
	p.budget = p.evaluated + trials
	for len(p.elite) > 0 && !p.over() {
		p.step()
	}
}

// effort returns the sequences of a round of search, and the rounds.
func (p *problem) effort() (trials, rounds int) {
	rounds = 1
	if p.n <= shortChain {
		rounds = restarts
	}
	if trials = p.request.Evaluations; trials == 0 {
		trials = min(max(searchedOps/len(p.elite[0].choice.order.ops), fewestTrials), mostTrials)
	}
	return max(trials/rounds, 1), rounds
}

// admit puts a candidate among the best, each period and amount of copies once.
func (p *problem) admit(x *candidate) {
	if x == nil || x.choice == nil {
		return
	}
	at, found := slices.BinarySearchFunc(p.elite, x, func(a, b *candidate) int {
		switch {
		case a.better(b):
			return -1
		case b.better(a):
			return 1
		}
		return 0
	})
	switch {
	case found:
		p.elite[at] = x // so that the search drifts among equals
		return
	case at >= eliteSize:
		return
	}
	p.elite = slices.Insert(p.elite, at, x)
	p.elite = p.elite[:min(len(p.elite), eliteSize)]
}

// try builds and times a choice, and again with the times of the first run. It returns the better plan; nil: it does not fit.
func (p *problem) try(x *choice, from string) *candidate {
	best := p.once(x, from)
	if best == nil || best.seq == nil {
		p.admit(best)
		return best
	}
	y := *x
	y.clock = best.clock
	if c := p.once(&y, from); c.better(best) {
		best = c
	}
	p.admit(best)
	return best
}

// once builds and times a choice.
func (p *problem) once(x *choice, from string) *candidate {
	seq, excess := p.build(x)
	if seq == nil {
		p.evaluated++
		return &candidate{excess: excess, period: math.Inf(1), choice: x, from: from}
	}
	c := p.time(seq, from)
	if c != nil {
		c.choice = x
	}
	return c
}

// groups returns numbers of microbatches that pass through a layer together.
func (p *problem) groups() (groups []int) {
	for g := 1; g < p.microbatches; g *= 2 {
		groups = append(groups, g)
	}
	return append(groups, p.microbatches)
}

// listOrders arranges the orders that the search chooses from.
func (p *problem) listOrders() {
	for _, g := range p.groups() {
		for _, t := range p.patterns(g) {
			if o := p.arrange(t); o != nil {
				p.orders = append(p.orders, o)
			}
		}
	}
	slices.SortStableFunc(p.orders, func(a, b *order) int {
		switch {
		case a.total < b.total:
			return -1
		case a.total > b.total:
			return 1
		}
		return 0
	})
}

// begin tries every order with updates on the device, on the host, on both, and in the next step.
func (p *problem) begin() {
	for _, o := range p.orders {
		if p.ctx.Err() != nil || p.best != nil && o.total >= p.best.period {
			continue
		}
		for way := range 4 {
			x := p.blank(o)
			x.moves = [itemKinds]bool{true, true, true, true}
			p.updateOnHost(x, func(l int) bool { return way == 1 || way == 2 && l%2 == 0 })
			for _, l := range p.owners {
				if way == 3 {
					x.delay[l] = len(o.ops) // just before the layer's next forward
				}
			}
			p.try(x, Auto)
			y := x.copied()
			y.moves[activationItem], y.policy.reserve = false, 1
			p.try(y, Auto)
		}
	}
}

// step changes one of the best plans.
func (p *problem) step() {
	k := min(p.random.IntN(len(p.elite)), p.random.IntN(len(p.elite)))
	parent := p.elite[k]
	x := parent.choice.copied()
	for range 1 + p.random.IntN(3) {
		p.mutate(x)
	}
	if p.best != nil && x.order.total >= p.best.period && x.order != parent.choice.order {
		p.evaluated++ // so that the search ends
		return
	}
	p.try(x, parent.from)
}

// mutate changes one decision, of one layer or of several.
func (p *problem) mutate(x *choice) {
	switch p.random.IntN(10) {
	case 0, 1:
		p.mutateHost(x)
	case 2, 3:
		p.mutateDelay(x)
	case 4, 5, 6:
		p.mutateGaps(x)
	case 7:
		p.mutateOrder(x)
	case 8:
		k := p.random.IntN(itemKinds)
		x.moves[k] = !x.moves[k]
	default:
		p.mutatePolicy(&x.policy)
	}
}

// mutateOrder takes another order, or computes other layers again.
func (p *problem) mutateOrder(x *choice) {
	next := p.orders[p.random.IntN(len(p.orders))]
	if p.random.IntN(2) == 0 {
		t := x.order.pattern
		t.segment = slices.Clone(t.segment)
		for _, l := range p.some() {
			switch t.segment[l] {
			case 0:
				t.segment[l] = l
			case l:
				t.segment[l] = 0
			}
		}
		t.segment[p.n] = 0
		if next = p.arrange(t); next == nil { // the first layer of a segment saves its output now
			return
		}
	}
	x.order, x.forced = next, map[gapKey]hint{}
}

func (p *problem) mutatePolicy(y *policy) {
	switch p.random.IntN(5) {
	case 0:
		y.lead, y.window = [...]float64{0.5, 1, 1.5, 2, 4, math.Inf(1)}[p.random.IntN(6)], 0
	case 1:
		y.reserve = [...]float64{0, 0.5, 1, 2, 3, 5}[p.random.IntN(6)]
	case 2:
		y.belady = !y.belady
	case 3:
		y.whole, y.most = !y.whole, -1
	default:
		y.window = p.random.IntN(4)
	}
}

// some returns layers of equal costs: one, neighbours, or every so many.
func (p *problem) some() (layers []int) {
	if len(p.classes) == 0 {
		return nil
	}
	class := p.classes[p.random.IntN(len(p.classes))]
	first := p.random.IntN(len(class))
	switch p.random.IntN(4) {
	case 0:
		return class
	case 1:
		return class[first : first+1+p.random.IntN(len(class)-first)]
	case 2:
		every := 1 + p.random.IntN(5)
		for i := first % every; i < len(class); i += every {
			layers = append(layers, class[i])
		}
		return layers
	}
	return class[first : first+1]
}

func (p *problem) mutateHost(x *choice) {
	host := p.random.IntN(2) == 0
	layers := p.some()
	if len(layers) == 1 {
		host = !x.host[layers[0]]
	}
	for _, o := range layers {
		x.host[o] = host && p.movable(o)
	}
}

// mutateDelay lets updates come at once, somewhere later in the step, at its end, or right before the next forward.
func (p *problem) mutateDelay(x *choice) {
	n := len(x.order.ops)
	_, last := p.extent(x.order.ops)
	kind, ops := p.random.IntN(5), 1+p.random.IntN(min(n, 8))
	for _, o := range p.some() {
		switch kind {
		case 0:
			x.delay[o] = 0
		case 1:
			x.delay[o] = n - 1 - last[o]
		case 2:
			x.delay[o] = n
		case 3:
			x.delay[o] = ops
		default:
			x.delay[o] = n - 1 - last[o] + ops
		}
	}
}

// mutateGaps lets items leave in a gap, or stay, against the policy.
func (p *problem) mutateGaps(x *choice) {
	layers := p.some()
	if len(x.gaps) == 0 {
		return
	}
	key, said := x.gaps[p.random.IntN(len(x.gaps))], hint(p.random.IntN(hints))
	if !slices.Contains(layers, key.layer) {
		layers = []int{key.layer}
	}
	for _, o := range layers {
		key.layer = o
		if said == undecided {
			delete(x.forced, key)
		} else {
			x.forced[key] = said
		}
	}
}

// polish moves single ops of the best plans, as long as that is better.
func (p *problem) polish(trials int) {
	elite := slices.DeleteFunc(slices.Clone(p.elite), func(x *candidate) bool { return x.seq == nil })
	for i, x := range elite {
		p.budget = p.evaluated + trials/min(len(elite), 4)
		if i >= 4 && len(x.seq) > 100 {
			break
		}
		p.polishOne(x)
	}
}

func (p *problem) polishOne(x *candidate) {
	for better := true; better && !p.over(); {
		better = false
		for _, i := range p.random.Perm(len(x.seq)) {
			if op := x.seq[i]; !op.Kind.OfState() && !op.Kind.Transfer() {
				continue
			}
			if y := p.shift(x, i); y.better(x) {
				x, better = y, true
				break
			}
		}
	}
}

// shift moves an op, alone or with the drop behind it, to other places, and returns the best plan; nil: none is legal.
func (p *problem) shift(x *candidate, i int) (best *candidate) {
	for size := 1; size <= 2 && i+size <= len(x.seq); size++ {
		if size == 2 && !isDrop(x.seq[i+1]) {
			break
		}
		for j := 0; j+size <= len(x.seq); j++ {
			if p.over() {
				return best
			}
			if j == i {
				continue
			}
			if y := p.timeMoved(x, i, j, size); y.better(best) {
				best = y
			}
		}
	}
	return best
}

// timeMoved times a plan in which ops from i on stand from j on.
func (p *problem) timeMoved(x *candidate, i, j, size int) *candidate {
	seq := slices.Clone(x.seq)
	moved := slices.Clone(seq[i : i+size])
	seq = slices.Insert(slices.Delete(seq, i, i+size), j, moved...)
	p.prime(seq)
	if p.sim.Verify(seq, p.limits) != nil {
		return nil
	}
	return p.time(seq, x.from)
}

func isDrop(op cycle.Op) bool { return !isCompute(op.Kind) && dropKinds[op.Kind] }
