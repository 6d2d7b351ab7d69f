package residency

import (
	"cmp"
	"math"
	"slices"
)

// fill keeps items on the device through gaps, for the room that there is. It returns the limit that what must be there needs, where that
// is above the limit.
func (l *layout) fill() (lack shortage) {
	if lack = l.lack(); lack.bytes > 0 {
		return lack
	}
	open := l.force()
	if lack = l.lack(); lack.bytes > 0 {
		return lack
	}
	if l.choice.policy.whole {
		open = l.keepWhole(open)
	}
	l.rank(open)
	room := l.p.limits.Memory - l.reserved(open)
	for _, g := range open {
		if l.fits(g, room) {
			l.keep(g)
		}
	}
	return shortage{}
}

// lack returns the bytes of the fullest turn, if they are above the limit.
func (l *layout) lack() shortage {
	turn, bytes := l.peak()
	if bytes <= l.p.limits.Memory {
		return shortage{}
	}
	return shortage{bytes: bytes, op: l.turns[turn]}
}

// force keeps the gaps that the choice names, and returns those that are open.
func (l *layout) force() (open []*gap) {
	l.choice.gaps = nil
	for _, g := range l.gaps {
		h := l.choice.forced[g.key()]
		switch {
		case !g.away || g.must:
			continue
		case h == undecided:
			open = append(open, g)
		case h == stays:
			l.keep(g)
		}
		l.choice.gaps = append(l.choice.gaps, g.key())
	}
	return open
}

func (l *layout) keep(g *gap) {
	g.away = false
	l.change(g, +1)
}

// fits reports whether an item can stay through a gap.
func (l *layout) fits(g *gap, room int64) bool {
	if g.to-g.from-1 >= l.len() { // all turns but its own
		return l.fitsSpan(g.from+1, g.from+l.len(), g.item.bytes, room)
	}
	return l.fitsSpan(g.from+1, g.to, g.item.bytes, room)
}

func (l *layout) fitsSpan(from, to int, bytes, room int64) bool {
	for from < to {
		first := from % l.len()
		last := min(first+to-from, l.len())
		for _, used := range l.used[first:last] {
			if used > room-bytes {
				return false
			}
		}
		from += last - first
	}
	return true
}

// reserved returns the bytes that are left for copies under way.
func (l *layout) reserved(open []*gap) int64 {
	largest := int64(0)
	for _, g := range open {
		largest = max(largest, g.item.bytes)
	}
	return int64(l.choice.policy.reserve * float64(largest))
}

// rank sorts gaps by the seconds of copies that a stay saves, for each byte and second of memory; or by their length.
func (l *layout) rank(open []*gap) {
	value := make(map[*gap]float64, len(open))
	for _, g := range open {
		length := l.at(g.to) - l.at(g.from+1)
		if l.choice.policy.belady {
			value[g] = -length
		} else {
			value[g] = l.saved(g) / (float64(g.item.bytes) * max(length, 1e-12))
		}
	}
	slices.SortStableFunc(open, func(a, b *gap) int { return cmp.Compare(value[b], value[a]) })
}

// saved returns the seconds of copies that a stay through a gap saves. An updated item is written back once, however often it leaves.
func (l *layout) saved(g *gap) float64 {
	up, down := l.p.up(g.item.bytes), l.p.down(g.item.bytes)
	if g.item.kind != weightsItem {
		return up + down
	}
	if g.item.updated < 0 {
		return up
	}
	away := 0
	for _, i := range g.item.gaps {
		if l.gaps[i].away {
			away++
		}
	}
	return up + down/float64(max(away, 1))
}

// keepWhole keeps all items of layers that fit, in the order of the layers. It returns the gaps that it did not keep. Where the policy
// says how many layers stay, those of weights and state leave.
func (l *layout) keepWhole(open []*gap) (left []*gap) {
	most := l.choice.policy.most
	kept := map[int]bool{}
	for _, o := range l.p.owners {
		if most >= 0 && len(kept) >= most {
			break
		}
		mine := l.owned(o)
		if l.fitTogether(mine) {
			kept[o] = true
		}
	}
	for _, g := range open {
		if g.away && (most < 0 || g.item.kind == activationItem) {
			left = append(left, g)
		}
	}
	return left
}

// owned returns the open gaps of the weights and the state of an owner.
func (l *layout) owned(o int) (gaps []*gap) {
	for _, g := range l.gaps {
		if g.away && !g.must && g.item.owner == o && g.item.kind <= stateItem {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// fitTogether keeps all gaps or none.
func (l *layout) fitTogether(gaps []*gap) bool {
	for i, g := range gaps {
		if !l.fits(g, l.p.limits.Memory) {
			for _, h := range gaps[:i] {
				h.away = true
				l.change(h, -1)
			}
			return false
		}
		l.keep(g)
	}
	return true
}

// need is a fetch to be placed, with its turns moved so that the item is needed in the step itself.
type need struct {
	gap        *gap
	earliest   int // turn before which it may stand at the earliest; below 0: of the step before
	due        int // turn that needs it, from 0
	at, target int // turn before which it stands so far, and may stand
}

// fetches places the fetches as early as the policy wants and memory lets them, each in its turn one turn earlier.
func (l *layout) fetches(ready map[*gap]float64) {
	needs := l.needs()
	l.aim(needs, ready)
	for moved := true; moved; {
		moved = false
		for i := range needs {
			x := &needs[i]
			if x.at <= x.target || x.at <= x.earliest {
				continue
			}
			t := (x.at - 1 + 2*l.len()) % l.len()
			if l.used[t] > l.p.limits.Memory-x.gap.item.bytes {
				x.target = x.at
				continue
			}
			l.used[t] += x.gap.item.bytes
			x.at--
			moved = true
		}
	}
	for _, x := range needs {
		g := x.gap
		g.fetch = x.at + g.to - x.due
		g.away = g.must || g.fetch > g.from+1 // an item that would come back at once stays
	}
}

// needs lists the fetches by the turn that needs them.
func (l *layout) needs() (needs []need) {
	for _, g := range l.gaps {
		if g.away {
			due := g.to % l.len()
			needs = append(needs, need{gap: g, earliest: g.earliest - g.to + due, due: due, at: due})
		}
	}
	slices.SortStableFunc(needs, func(a, b need) int { return cmp.Compare(a.due, b.due) })
	return needs
}

// aim says how early each fetch may stand: as the policy says, but not before the host has written its copy.
func (l *layout) aim(needs []need, ready map[*gap]float64) {
	switch w, lead := l.choice.policy.window, l.choice.policy.lead; {
	case w > 0:
		for i := range needs {
			needs[i].target = needs[i].due - w
		}
		return
	case math.IsInf(lead, 1):
		for i := range needs {
			needs[i].target = needs[i].earliest
		}
	default:
		l.aimInTime(needs, lead)
	}
	for i := range needs {
		x := &needs[i]
		switch l.choice.forced[x.gap.key()] {
		case leavesLate:
			x.target = x.due
		case leavesEarly:
			x.target = x.earliest
		}
		if r, waits := ready[x.gap]; waits {
			shift := float64((x.gap.to-x.due)/l.len()) * l.clock[l.len()]
			x.target = max(x.target, min(l.turnAt(r-shift)+1, x.due))
		}
	}
}

// aimInTime finds the latest turn at which each fetch can begin in time. All copies to the device run one after the other, lead times as
// long as predicted. One link has the copies to the host between them.
func (l *layout) aimInTime(needs []need, lead float64) {
	if !l.p.link.Duplex {
		lead *= 2
	}
	free := math.Inf(1)
	for range 2 {
		for i := len(needs) - 1; i >= 0; i-- {
			x := &needs[i]
			free = min(free, l.at(x.due)) - lead*l.p.up(x.gap.item.bytes)
			x.target = l.turnAt(free)
		}
		free += l.clock[l.len()]
	}
}

// turnAt returns the last turn that starts at a time or before, in whatever step.
func (l *layout) turnAt(time float64) int {
	period := l.clock[l.len()]
	if period <= 0 {
		return 0
	}
	step := math.Floor(time / period)
	i, found := slices.BinarySearch(l.clock[:l.len()], time-step*period)
	if !found {
		i--
	}
	return int(step)*l.len() + max(i, 0)
}
