package residency

import (
	"math"
	"slices"

	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// item is weights, state, a gradient or an activation.
type item struct {
	kind              itemKind
	layer, microbatch int
	owner             int
	bytes             int64
	gaps              []int // in layout.gaps
	updated           int   // turn behind which the device's copy is newer; -1: none
}

// gap is the time between two uses of an item.
type gap struct {
	item     *item
	use      int
	from, to int  // turns; to may be in the next step
	away     bool // the item leaves the device
	must     bool // it must, because the host updates it
	earliest int  // turn before which its fetch may stand at the earliest
	fetch    int  // turn before which its fetch stands
}

func (g *gap) key() gapKey { return gapKey{g.item.kind, g.item.layer, g.item.microbatch, g.use} }

// layout is the compute ops of a step, the turns, with the items that they use.
type layout struct {
	p       *problem
	choice  *choice
	turns   []cycle.Op
	seconds []float64
	clock   []float64 // start of each turn, and the end of the last
	used    []int64   // bytes in use at a turn: first of what must be there, then of what stays
	turnOf  []int     // by op of the order
	updates []int     // by owner: the turn of its update on the device; -1: none
	first   []int     // by owner: turns of the first forward and the last backward
	last    []int
	gaps    []*gap
	steps   []int64 // by turn: what used rises by from there on, until settle adds it up
	whole   []int   // by layer: the turn of its last backward
}

func (l *layout) len() int { return len(l.turns) }

// at returns the start of a turn, which may be in another step.
func (l *layout) at(turn int) float64 {
	n := l.len()
	step := turn / n
	if turn < 0 {
		step = (turn+1)/n - 1
	}
	return float64(step)*l.clock[n] + l.clock[turn-step*n]
}

// lay puts the updates among the ops of the order and lists the items.
func (p *problem) lay(x *choice) *layout {
	l := &layout{p: p, choice: x}
	l.merge(l.updateGaps())
	l.startClock()
	l.steps, l.whole = make([]int64, l.len()+1), make([]int, p.n+1)
	for _, o := range p.owners {
		l.addOwner(o)
	}
	for _, s := range x.order.leaves {
		l.addActivation(s)
	}
	l.settle()
	return l
}

// updateGaps returns the owners that the device updates by the op of the order before which they are; len(ops): behind the last one.
func (l *layout) updateGaps() [][]int {
	x, ops := l.choice, l.choice.order.ops
	n := len(ops)
	first, last := l.p.extent(ops)
	gaps := make([][]int, n+1)
	for i := len(l.p.owners) - 1; i >= 0; i-- {
		o := l.p.owners[i]
		if x.host[o] || l.p.frozen(o) {
			continue
		}
		g := min(last[o]+1+x.delay[o], n+first[o])
		if l.p.limits.UpdatesLast {
			g = max(g, n)
		}
		if g > n {
			g -= n
		}
		gaps[g] = append(gaps[g], o)
	}
	return gaps
}

// extent returns, by owner, the first forward and the last backward.
func (p *problem) extent(ops []cycle.Op) (first, last []int) {
	first, last = make([]int, p.n+1), make([]int, p.n+1)
	for i := range first {
		first[i], last[i] = -1, -1
	}
	for i, op := range ops {
		o := p.c.Owner(op.Layer)
		if first[o] < 0 {
			first[o] = i
		}
		if op.Kind == schedule.Backward {
			last[o] = i
		}
	}
	return first, last
}

// merge makes the turns.
func (l *layout) merge(gaps [][]int) {
	x := l.choice.order
	l.updates = make([]int, l.p.n+1)
	for i := range l.updates {
		l.updates[i] = -1
	}
	for i := range len(x.ops) + 1 {
		for _, o := range gaps[i] {
			l.updates[o] = len(l.turns)
			l.turns = append(l.turns, cycle.Op{Kind: schedule.Update, Layer: o})
			l.seconds = append(l.seconds, l.p.c.Layer(o).Update.DeviceS)
			l.used = append(l.used, x.rest[i])
		}
		if i < len(x.ops) {
			l.turnOf = append(l.turnOf, len(l.turns))
			l.turns = append(l.turns, x.ops[i])
			l.seconds = append(l.seconds, x.seconds[i])
			l.used = append(l.used, x.used[i])
		}
	}
	l.first, l.last = l.p.extent(l.turns)
}

// startClock tells when the turns start: as observed, or one behind the other.
func (l *layout) startClock() {
	if len(l.choice.clock) == l.len()+1 {
		l.clock = l.choice.clock
		return
	}
	l.clock = make([]float64, l.len()+1)
	for i, s := range l.seconds {
		l.clock[i+1] = l.clock[i] + s
	}
}

// addOwner lists weights, state and gradients of an owner, and takes their bytes where they are used.
func (l *layout) addOwner(o int) {
	layer := l.p.c.Layer(o)
	weights := &item{kind: weightsItem, layer: o, owner: o, bytes: layer.WeightBytes, updated: l.updates[o]}
	var uses []int
	backwards := map[int][]int{}
	for t, op := range l.turns {
		if op.Kind == schedule.Update && op.Layer != o || l.p.c.Owner(op.Layer) != o {
			continue
		}
		uses = append(uses, t)
		if op.Kind == schedule.Backward {
			backwards[op.Layer] = append(backwards[op.Layer], t)
		}
	}
	l.add(weights, uses, true)
	if l.p.frozen(o) {
		return
	}
	if u := l.updates[o]; u >= 0 && layer.Update.StateBytes > 0 {
		l.add(&item{kind: stateItem, layer: o, owner: o, bytes: layer.Update.StateBytes, updated: u}, []int{u}, true)
	}
	for _, user := range l.p.users[o] {
		l.addGradient(user, o, backwards[user])
	}
}

// addGradient lists the gradient of a layer: from its first backward to its update on the device, or its last backward. Where gradients are
// clipped together, those of layers that share weights stay until all of them are on the device.
func (l *layout) addGradient(user, o int, uses []int) {
	if l.p.limits.UpdatesLast {
		for t := uses[len(uses)-1] + 1; t <= l.last[o]; t++ { // it is measured with those of the layers that share the weights
			uses = append(slices.Clip(uses), t)
		}
	}
	l.whole[user] = uses[len(uses)-1]
	if u := l.updates[o]; u >= 0 {
		if u < uses[0] {
			u += l.len()
		}
		uses = append(slices.Clip(uses), u)
	}
	l.add(&item{kind: gradientItem, layer: user, owner: o, bytes: l.p.c.Layer(o).WeightGradient(), updated: -1}, uses, false)
}

// addActivation lists an activation; its bytes are in the order's.
func (l *layout) addActivation(s absence) {
	it := &item{kind: activationItem, layer: s.activation + 1, microbatch: s.microbatch, bytes: s.bytes, updated: -1}
	l.addGap(it, 0, l.turnOf[s.from], l.turnOf[s.to])
	if g := l.gaps[it.gaps[0]]; g.away {
		l.note(g, -1)
	}
}

// add lists an item with its gaps, which it leaves the device in so far; around: also from the last use to the first.
func (l *layout) add(it *item, uses []int, around bool) {
	n := l.len()
	for _, t := range uses {
		l.used[t%n] += it.bytes
	}
	for i := range uses {
		switch {
		case i+1 < len(uses):
			l.addGap(it, i, uses[i], uses[i+1])
		case around:
			l.addGap(it, i, uses[i], uses[0]+n)
		}
	}
}

func (l *layout) addGap(it *item, use, from, to int) {
	g := &gap{item: it, use: use, from: from, to: to, away: to > from+1, earliest: from + 1, fetch: to}
	x := l.choice
	if !x.moves[it.kind] && x.forced[g.key()] < leaves || l.p.link.ToDevice == 0 || l.p.link.ToHost == 0 {
		g.away = false
	}
	if it.kind == weightsItem && x.host[it.layer] && from == l.last[it.owner] {
		g.must, g.away = true, true
	}
	it.gaps = append(it.gaps, len(l.gaps))
	l.gaps = append(l.gaps, g)
	if !g.away && it.kind != activationItem {
		l.note(g, +1)
	}
}

// note adds the bytes of a gap's item, or takes them, in the turns between its uses, when settle is called.
func (l *layout) note(g *gap, sign int64) {
	n, bytes := l.len(), sign*g.item.bytes
	from, to := g.from+1, g.to
	if from >= to {
		return
	}
	if from >= n {
		from, to = from-n, to-n
	}
	l.steps[from] += bytes
	if to <= n {
		l.steps[to] -= bytes
		return
	}
	l.steps[n] -= bytes
	l.steps[0] += bytes
	l.steps[to-n] -= bytes
}

// settle adds up what was noted.
func (l *layout) settle() {
	sum := int64(0)
	for t := range l.used {
		sum += l.steps[t]
		l.used[t] += sum
	}
}

// change adds the bytes of a gap's item, or takes them, in the turns between its uses.
func (l *layout) change(g *gap, sign int64) {
	for from, to := g.from+1, g.to; from < to; {
		first := from % l.len()
		last := min(first+to-from, l.len())
		for t := first; t < last; t++ {
			l.used[t] += sign * g.item.bytes
		}
		from += last - first
	}
}

// peak returns the turn with the most bytes.
func (l *layout) peak() (turn int, bytes int64) {
	bytes = math.MinInt64
	for t, used := range l.used {
		if used > bytes {
			turn, bytes = t, used
		}
	}
	return turn, bytes
}

// shortage is the least memory of the plans that did not fit.
type shortage struct {
	bytes, host int64 // 0: none
	op          cycle.Op
}
