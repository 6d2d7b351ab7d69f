package pofo

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// forward explores OC_x(s, A, Δ_F, Δ_B) of section 4.2.1 from the input of the chain to the loss. It is the joint cost
// of the beginning of the forward phase and the end of the backward phase, by the state that they leave to the layers
// between.
//
// The states are exact: nothing is rounded up, so that a limit is feasible here if it is at all. If a layer has more states than the
// program can follow, states that share a cell are thinned. The fastest one stays, the one with the lowest bound, and the one with
// the smallest A, without which small limits would be lost.
//
// A state beats another when it has no larger A and is faster even after waiting until its Δ_F and Δ_B are as small.
// One can always wait, and waiting moves as many bytes as it takes time.
type forward struct {
	*costs
	segments *segments
	limit    float64 // M
	longest  float64 // states that cannot end before are of no use
	cells    int     // of A, Δ_F and Δ_B, for a layer with too many states
	most     int     // states that a layer may keep
	whole    bool    // memory is free when a whole activation has been moved; else piece by piece (OR.5)
	tails    *tails  // what the layers from s on take beyond must; nil: only rests bound it, and do not choose which states are kept
	rests    []rest  // what they run again
	states   [2][][]state

	// of the state that is followed now
	sent, wanted queue // to the host; in reversed time to the device
	sizes        []float64
}

// state is A_s, Δ_{F_s}, Δ_{B_s} and the time of F_1..F_{s-1} and B_{s-1}..B_1 so far. All are bytes; see costs.
type state struct {
	a, f, b, t float64
	least      float64 // what everything takes at least
	moved      float64 // bytes offloaded so far; of equal states the one with fewer is kept
	from       origin
}

// origin is the last choice that led to a state.
type origin struct {
	s       int32 // first layer of the choice
	t       int32 // last layer; F_s..F_t save nothing and are run again after the loss. 0: F^all_s
	index   int32 // of the state of (s, saved)
	part    int32 // how s..t are run again
	saved   bool  // the input of s was ā_{s-1}
	offload bool  // the input of s is offloaded
}

// ending is a state before the loss with the cost of everything.
type ending struct {
	cost  float64 // bytes
	moved float64
	saved bool
	index int
}

// solve returns the endings, cheapest first.
func (g *forward) solve(ctx context.Context) ([]ending, error) {
	if g.tails == nil {
		g.rests = g.costs.rests(g.limit)
	}
	for x := range g.states {
		g.states[x] = make([][]state, g.n+1)
	}
	g.sent.whole, g.wanted.whole = g.whole, g.whole
	g.states[0][1] = []state{{}}
	for s := 1; s < g.n; s++ {
		for x := range g.states {
			g.states[x][s] = g.thin(g.states[x][s])
			runs := g.runsFrom(s)
			for i := range g.states[x][s] {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				g.load(s, i, x == 1)
				g.startAll(s, i, x == 1)
				for _, r := range runs {
					g.startRun(r, i, x == 1)
				}
			}
		}
	}
	return g.endings(), nil
}

// load sets the queues to those of a state.
func (g *forward) load(s, index int, saved bool) {
	st := &g.states[bit(saved)][s][index]
	g.sizes = g.sizes[:0]
	if g.whole {
		most := max(st.f, st.b)
		for at := st; s > 1 && most > 0; {
			from := at.from
			if from.offload {
				g.sizes = append(g.sizes, g.input(int(from.s), from.saved))
				most -= g.sizes[len(g.sizes)-1]
			}
			s = int(from.s)
			at = &g.states[bit(from.saved)][s][from.index]
		}
	}
	g.sent.fill(st.f, g.sizes)
	g.wanted.fill(st.b, g.sizes)
}

// offer puts a state before layer s unless it cannot end in time.
func (g *forward) offer(s int, saved bool, st state) {
	left := max(0, st.f-g.restFirst[s]) + max(0, st.b-g.restAll[s]-g.restBack[s])
	if g.duplex {
		left = max(0, st.f-g.restFirst[s])
	}
	must, stored := st.t+g.must(s, g.n), st.a+st.f+g.input(s, saved)
	if g.tails != nil {
		st.least = must + max(left, g.tails.least(s, stored))
	} else {
		st.least = must + max(left, g.rests[s].least(stored, g.longest-st.t-g.restBack[s]))
	}
	if st.least > g.longest || st.a > g.limit {
		return
	}
	x := 0
	if saved {
		x = 1
	}
	g.states[x][s] = append(g.states[x][s], st)
}

// startAll is case 1 of section 4.2.1: F^all_s, and B_s at the end.
func (g *forward) startAll(s, index int, saved bool) {
	st := &g.states[bit(saved)][s][index]
	if d, ok := g.around(s, st, saved); ok {
		g.next(origin{s: int32(s), index: int32(index), saved: saved}, *st, g.input(s, saved), d)
	}
}

// around returns the time of F^all_s and B_s; false when they do not fit.
func (g *forward) around(s int, st *state, saved bool) (stretch, bool) {
	room := g.limit - st.a - g.input(s, saved)
	return stretch{
		before:  g.all[s] + g.sent.wait(g.needAll[s]-room+g.sent.total),
		after:   g.back[s] + g.wanted.wait(g.needBack[s]-room+g.wanted.total),
		mayStay: true,
	}, max(g.needAll[s], g.needBack[s]) <= room
}

// stretch is the time that a choice takes before and after the loss, waiting included, which is what the link moves in it.
type stretch struct {
	before, after float64
	mayStay       bool // the input may stay on the device
}

// next is table 4.1: both choices for the input of layer from.s, which has in bytes.
func (g *forward) next(from origin, st state, in float64, d stretch) {
	saved, s := from.t == 0, int(max(from.s, from.t))+1
	out := state{
		a: st.a + in, f: max(st.f-d.before, 0), b: max(st.b-d.after, 0),
		t: st.t + d.before + d.after, moved: st.moved, from: from,
	}
	if d.mayStay {
		g.offer(s, saved, out)
	}
	out.from.offload = true
	out.a = st.a
	out.f = max(st.f+in-d.before, 0)
	out.b += in
	out.moved += in
	g.offer(s, saved, out)
}

// forwards is F_s..F_t without saving. Beside the input F_s needs alone bytes, the later ones at most most bytes, and need
// bytes must be free at the start if nothing is to wait.
type forwards struct {
	s, t              int
	alone, most, need float64
}

// runsFrom returns the runs of forwards from s to every layer before the loss.
func (g *forward) runsFrom(s int) []forwards {
	var out []forwards
	r := forwards{s: s, alone: g.needForward(s, s), need: math.Inf(-1)}
	for t := s; t < g.n; t++ {
		here := g.needForward(s, t)
		r.t, r.need = t, max(r.need, here-(g.again[t-1]-g.again[s-1]))
		if t > s {
			r.most = max(r.most, here)
		}
		out = append(out, r)
	}
	return out
}

// startRun is case 2 of section 4.2.1: F_s..F_t without saving, which are run again after the loss.
func (g *forward) startRun(r forwards, index int, saved bool) {
	st := &g.states[bit(saved)][r.s][index]
	in := g.input(r.s, saved)
	room := g.limit - st.a - in
	if r.alone > room || r.most > room+in {
		return
	}
	after, best := g.segments.best(r.s, r.t, room, &g.wanted)
	if best < 0 {
		return
	}
	before := g.again[r.t] - g.again[r.s-1] + g.sent.wait(r.need-room+g.sent.total)
	from := origin{s: int32(r.s), t: int32(r.t), index: int32(index), part: int32(best), saved: saved}
	g.next(from, *st, in, stretch{before, after, r.most <= room})
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// endings is section 4.2.2: the loss, and the wait for all transfers between the phases.
func (g *forward) endings() []ending {
	var all []ending
	for x := range g.states {
		g.states[x][g.n] = g.thin(g.states[x][g.n])
		for i, st := range g.states[x][g.n] {
			g.load(g.n, i, x == 1)
			d, ok := g.around(g.n, &st, x == 1)
			if !ok {
				continue
			}
			cost := st.t + d.before + d.after + g.junction(max(st.f-d.before, 0), max(st.b-d.after, 0))
			if cost <= g.longest {
				all = append(all, ending{cost, st.moved, x == 1, i})
			}
		}
	}
	slices.SortStableFunc(all, func(p, q ending) int {
		return cmp.Or(cmp.Compare(p.cost, q.cost), cmp.Compare(p.moved, q.moved))
	})
	return all
}

// junction is ε_G: a duplex link moves both ways at once.
func (g *forward) junction(f, b float64) float64 {
	if g.duplex {
		return max(f, b)
	}
	return f + b
}

// thin drops states that another beats, and, if too many are left, all but two or three of each cell.
func (g *forward) thin(all []state) []state {
	crowd := 8 * g.most
	if g.tails != nil {
		crowd = 3 * g.most
	}
	for cells := 8 * g.cells; len(all) > crowd && cells > 0; cells /= 2 {
		all = g.perCell(all, cells)
	}
	all = undominated(all)
	for cells := 8 * g.cells; len(all) > g.most && cells > 0; cells /= 2 {
		all = g.perCell(all, cells)
	}
	return all
}

// perCell keeps, for each cell of A, Δ_F and Δ_B, the state that is first done and the one with the smallest A. If tails give bounds,
// it also keeps the state with the lowest bound of everything.
func (g *forward) perCell(all []state, cells int) []state {
	side := max(g.limit/float64(cells), 1)
	type kept struct{ promising, fastest, smallest int }
	best := make(map[uint64]kept, len(all)/2)
	for i := range all {
		st := &all[i]
		cell := index(st.a/side)<<42 | index(st.f/side)<<21 | index(st.b/side)
		k, ok := best[cell]
		if !ok {
			best[cell] = kept{i, i, i}
			continue
		}
		was := k
		if st.compare(&all[k.fastest]) < 0 {
			k.fastest = i
		}
		if least := all[k.promising].least; g.tails != nil && (st.least < least || st.least == least && st.compare(&all[k.promising]) < 0) {
			k.promising = i
		}
		if least := all[k.smallest].a; st.a < least || st.a == least && st.compare(&all[k.smallest]) < 0 {
			k.smallest = i
		}
		if k != was {
			best[cell] = k
		}
	}
	keep := make([]bool, len(all))
	for _, k := range best {
		keep[k.fastest], keep[k.smallest] = true, true
		if g.tails != nil {
			keep[k.promising] = true
		}
	}
	out := make([]state, 0, 2*len(best))
	for i, k := range keep {
		if k {
			out = append(out, all[i])
		}
	}
	return out
}

// index returns the cell of a size counted in sides of cells, in 21 bits.
func index(size float64) uint64 { return uint64(min(size, 1<<21-1)) }

// compare orders states by the time after which nothing is left to move; ties by everything else. Mostly
// the first comparison decides.
func (p *state) compare(q *state) int {
	switch x, y := p.t+p.f+p.b, q.t+q.f+q.b; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return cmp.Or(cmp.Compare(p.t, q.t), cmp.Compare(p.a, q.a), cmp.Compare(p.moved, q.moved), cmp.Compare(p.f, q.f), p.from.compare(&q.from))
}

// compare makes the order of states total, so that it does not depend on the order in which they came.
func (p *origin) compare(q *origin) int {
	return cmp.Or(cmp.Compare(p.s, q.s), cmp.Compare(p.t, q.t), cmp.Compare(p.index, q.index),
		bit(p.saved)-bit(q.saved), bit(p.offload)-bit(q.offload))
}

// beats reports whether q is of no use beside p.
func (p *state) beats(q *state) bool {
	return p.a <= q.a && p.t+max(0, p.f-q.f)+max(0, p.b-q.b) <= q.t
}

// undominated returns the states that no other beats.
func undominated(all []state) []state {
	slices.SortFunc(all, func(p, q state) int { return p.compare(&q) })
	keep := all[:0]
next:
	for _, st := range all {
		for i := range keep {
			if keep[i].beats(&st) {
				// Usually the same state beats many in a row.
				keep[0], keep[i] = keep[i], keep[0]
				continue next
			}
		}
		keep = append(keep, st)
	}
	return keep
}
