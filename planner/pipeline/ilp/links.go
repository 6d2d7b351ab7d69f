package ilp

import "plimsoll/planner/milp"

// links: communications (thesis 6.2.3). A communication exists only where its two sides are on different devices. It takes the time of the
// link between them, and has that link alone. z̃ needs only its lower bounds (6.8) and (6.9). If z̃ is 1 without need, the program is more
// constrained, never wrong.

// send is the communication between two tasks.
type send struct {
	from, to int // layers
	start    milp.Var
	shift    milp.Var           // ṽ, see path
	length   sum                // 0 when both sides are on one device
	most     float64            // the longest it can take, periods
	before   map[*send]milp.Var // it starts before another one in the period
}

// communications adds those that can take time, and keeps them apart.
func (g *program) communications() {
	g.sends = make([]*send, len(g.start))
	var all []*send
	for i := range len(g.start) - 1 {
		if s := g.send(i); s != nil {
			g.sends[i] = s
			for _, before := range all {
				g.share(before, s)
			}
			all = append(all, s)
		}
	}
}

// send adds the communication between tasks i and i+1; nil when it takes no time on any link.
func (g *program) send(i int) *send {
	bytes := g.bytes(i)
	seconds := g.slowest(bytes)
	if seconds == 0 || g.cut(g.boundary(i)).most() == 0 {
		return nil
	}
	s := &send{before: map[*send]milp.Var{}, from: g.layer(i), to: g.layer(i + 1), start: g.Var(0, 0, 1), most: min(1, seconds/g.period)}
	if g.alike {
		s.length = number(0).plus(s.most, g.cut(g.boundary(i)))
		if seconds > g.period {
			g.equal(g.cut(g.boundary(i)), number(0))
		}
		return s
	}
	s.length = of(g.Var(0, 0, s.most))
	for x := range g.Platform.Devices {
		for y := range g.Platform.Devices {
			g.slow(s, x, y, bytes)
		}
	}
	return s
}

// slow: a communication from device x to device y takes its time, or does not take place.
func (g *program) slow(s *send, x, y int, bytes int64) {
	if x == y || g.Platform.Beta(x, y) == 0 {
		return
	}
	both := of(g.on[s.from][x]).plus(1, of(g.on[s.to][y])).plus(-1, number(1))
	length := g.Platform.Seconds(bytes, x, y) / g.period
	if length > 1 {
		g.atLeast(number(0), both)
		return
	}
	g.atLeast(s.length, number(0).plus(length, both))
}

// share: two communications on one link follow each other. A link has both directions unless it is duplex.
func (g *program) share(s, t *send) {
	apart := g.together(s.from, s.to).plus(1, number(1))
	along := g.together(s.from, t.from).plus(1, g.together(s.to, t.to)).plus(-1, apart)
	against := g.together(s.from, t.to).plus(1, g.together(s.to, t.from)).plus(-1, apart)
	if g.Platform.Duplex {
		against = number(0)
	}
	if along.most() <= 0 && against.most() <= 0 {
		return
	}
	z, first := g.Var(0, 0, 1), g.Binary(0)
	g.atLeast(of(z), along)
	g.atLeast(of(z), against)
	g.exclude(s.start, t.start, first, of(z), busy(s, z, g.alike), busy(t, z, g.alike))
	s.before[t] = first
}

// busy returns how long a communication takes when z is 1; at most 0 when it is 0.
func busy(s *send, z milp.Var, alike bool) sum {
	if alike {
		return number(0).plus(s.most, of(z))
	}
	return s.length.plus(-s.most, number(1)).plus(s.most, of(z))
}
