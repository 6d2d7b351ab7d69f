package pipeline

// A stage with transfers
//
// Ops may be transfers too, with one minibatch a period. Each device has a link to its host (Platform.Host, bytes/s), or one for each
// direction if the platform is duplex. F has the offloads, each once, and B has their prefetches. A compute op does not wait for a
// transfer. The plan determines when transfers run, the same in every period:
//
//	prefetches    in their order, each as late as the link allows: it ends before the first op of B begins that reads the
//	              activation, and before the next prefetch of the minibatch begins; it may begin before B does
//	offloads      in their order, each as early as the link, with all prefetches on it, allows: after every op of F before it,
//	              and the offload before it, has ended
//
// The link does one thing at a time, modulo the period: the transfers of all minibatches in flight are on it. A plan in which a
// transfer finds no time, or a prefetch begins before its offload has ended, is refused.
//
// The memory is the sum over all live minibatches at every instant of the period, exactly. Each minibatch is counted as above, except for
// offloaded activations. An offloaded activation counts until both the transfer and the op that directly follows the offload, and may still
// read it, have ended. It counts again from the start of its prefetch on.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// reservations are the times at which a link is busy, modulo the period: a row of a modulo reservation table.
type reservations struct {
	period float64
	busy   []window
}

// around returns a time modulo a period.
func around(t, period float64) float64 { return t - math.Floor(t/period)*period }

// conflict returns a span that is busy while a transfer would run, and how far its start is behind the transfer's: negative if it
// began before.
func (l *reservations) conflict(at, seconds float64) (w window, behind float64, is bool) {
	slack := near * l.period
	for _, s := range l.busy {
		after := around(s.from-at, l.period)
		switch {
		case after < seconds-slack && s.length > slack:
			return s, after, true
		case l.period-after < s.length-slack && seconds > slack:
			return s, after - l.period, true
		}
	}
	return window{}, 0, false
}

// reserve books the first time, from a time on and within a period, at which the link is free for so long.
func (l *reservations) reserve(from, seconds float64) (at float64, ok bool) {
	for at = from; at < from+l.period && seconds <= l.period*(1+near); {
		s, behind, is := l.conflict(at, seconds)
		if !is {
			l.busy = append(l.busy, window{at, seconds})
			return at, true
		}
		at += behind + s.length
	}
	return 0, false
}

// reserveBefore books the last time, up to a time and within a period, at which the link is free for so long.
func (l *reservations) reserveBefore(end, seconds float64) (at float64, ok bool) {
	for at = end - seconds; at > end-seconds-l.period && seconds <= l.period*(1+near); {
		_, behind, is := l.conflict(at, seconds)
		if !is {
			l.busy = append(l.busy, window{at, seconds})
			return at, true
		}
		at += behind - seconds
	}
	return 0, false
}

// swap is when an activation is offloaded and prefetched: starts, counted from the start of F.
type swap struct{ out, back float64 }

// misfit says why the transfers of a stage cannot run.
type misfit struct {
	rule   Rule
	reason string
}

// swaps places the first n moves on the link, as the package says; nil and why when that is not possible.
func (c *StageCost) swaps(p *Platform, r Rhythm, n int) ([]swap, *misfit) {
	all := make([]swap, n)
	in := &reservations{period: r.Period}
	end := math.Inf(1)
	for _, k := range slices.Backward(c.fetches) {
		if k >= n {
			continue
		}
		v := &c.moves[k]
		at, ok := in.reserveBefore(min(end, r.Later+v.due), v.seconds(p))
		if !ok {
			return nil, v.full(v.back, p, r)
		}
		all[k].back, end = at, at
	}
	out := in
	if p.Duplex {
		out = &reservations{period: r.Period}
	}
	begin := math.Inf(-1)
	for k := range all {
		v := &c.moves[k]
		at, ok := out.reserve(max(begin, v.ready), v.seconds(p))
		if !ok {
			return nil, v.full(v.out, p, r)
		}
		all[k].out, begin = at, at+v.seconds(p)
		if begin > all[k].back+near*r.Period {
			return nil, &misfit{RuleDependency, fmt.Sprintf("op %d prefetches activation %d at %g s after the start of F, its offload ends at %g s", v.back, v.index, all[k].back, begin)}
		}
	}
	return all, nil
}

func (v *move) seconds(p *Platform) float64 { return float64(v.bytes) / p.Host }

func (v *move) full(op int, p *Platform, r Rhythm) *misfit {
	return &misfit{RuleResource, fmt.Sprintf("op %d transfers activation %d in %g s: the link to the host has no room for it in a period of %g s", op, v.index, v.seconds(p), r.Period)}
}

// moment is a change of the memory of a device at a time of the period.
type moment struct {
	at    float64
	bytes int64
}

// Moves returns how many activations are offloaded.
func (c *StageCost) Moves() int { return len(c.moves) }

// MoveSeconds returns how long all offloads and prefetches take together.
func (c *StageCost) MoveSeconds(p *Platform) (sum float64) {
	for _, v := range c.moves {
		sum += v.seconds(p)
	}
	return sum
}

// HasRoom reports whether the links to the host have room for the first n moves.
func (c *StageCost) HasRoom(p *Platform, r Rhythm, n int) bool {
	_, why := c.swaps(p, r, n)
	return why == nil
}

// Held returns the most bytes that all live minibatches hold together at any instant when the first n moves are made. The result is
// false if the links to the host have no room for the moves.
func (c *StageCost) Held(p *Platform, r Rhythm, n int) (int64, bool) {
	bytes, why := c.held(p, r, n)
	return bytes, why == nil
}

// held is Held. Memory that is freed at the end of F or B can be taken at that instant.
func (c *StageCost) held(p *Platform, r Rhythm, n int) (int64, *misfit) {
	swaps, why := c.swaps(p, r, n)
	if why != nil {
		return 0, why
	}
	all := make([]moment, 0, len(c.changes)+2*n)
	level, slack := int64(0), near*r.Period
	put := func(at float64, bytes int64) {
		turns := math.Floor(at / r.Period)
		level -= int64(turns) * bytes
		all = append(all, moment{at - turns*r.Period, bytes})
	}
	for _, x := range c.changes {
		put(c.when(x, r, slack), x.bytes)
	}
	for k, t := range swaps {
		v := &c.moves[k]
		free := max(t.out+v.seconds(p), v.read)
		if free > v.ready+slack {
			free -= slack
		}
		put(free, -v.bytes)
		put(t.back, v.bytes)
	}
	slices.SortStableFunc(all, func(x, y moment) int { return cmp.Compare(x.at, y.at) })
	top := level
	for _, x := range all {
		level += x.bytes
		top = max(top, level)
	}
	return top, nil
}

// when returns the time of a change, from the start of F on; what happens when a part ends is a little earlier.
func (c *StageCost) when(x change, r Rhythm, slack float64) float64 {
	begin, seconds := 0.0, c.Forward
	if x.back {
		begin, seconds = r.Later, c.Backward
	}
	if x.at >= seconds {
		return begin + x.at - slack
	}
	return begin + x.at
}
