package remat

import (
	"math"
	"sort"
)

// step is a point at which a curve falls: with memory from bytes on, the excess is at most ticks.
type step struct {
	bytes int64
	ticks int64
}

// curve is an excess as a step function of memory: steps with rising bytes and falling ticks. Below the first step
// nothing is feasible. It never holds two steps that one could replace.
type curve []step

// index returns the step that holds at m bytes, -1 below the first.
func (c curve) index(m int64) int {
	return sort.Search(len(c), func(i int) bool { return c[i].bytes > m }) - 1
}

// at returns the excess at m bytes; ok is false when m is infeasible.
func (c curve) at(m int64) (ticks int64, ok bool) {
	i := c.index(m)
	if i < 0 {
		return 0, false
	}
	return c[i].ticks, true
}

// envelope is the lower envelope of candidate curves, cut off above a memory limit and above an excess. It is the inner
// loop of the exact programs: candidates that never undercut it cost one scan of their steps and no writing.
type envelope struct {
	limit, ceiling int64
	best           curve // the first step, at 0 bytes, is the ceiling until a candidate is lower there
	spare          curve // the next best, while it is written
}

// reset empties the envelope: only steps of up to limit bytes and of less than ceiling ticks are wanted.
func (e *envelope) reset(limit, ceiling int64) {
	e.limit, e.ceiling, e.best = limit, ceiling, append(e.best[:0], step{0, ceiling})
}

// steps returns a copy of the envelope, of exact size.
func (e *envelope) steps() curve {
	steps := e.best
	if steps[0].ticks == e.ceiling {
		steps = steps[1:]
	}
	if len(steps) == 0 {
		return nil
	}
	return append(make(curve, 0, len(steps)), steps...)
}

// end returns the memory from which on a candidate of at least floor ticks is of no use: there the envelope is
// at most floor, or the limit is passed.
func (e *envelope) end(floor int64) int64 {
	i := sort.Search(len(e.best), func(i int) bool { return e.best[i].ticks <= floor })
	if i == len(e.best) {
		return e.limit + 1
	}
	return e.best[i].bytes
}

// add offers the candidate plus + f(m - shift) for m >= need.
func (e *envelope) add(f curve, shift, need, plus int64) { e.sum(f, free, shift, need, plus) }

// free is the curve of nothing to do.
var free = curve{{}}

// sum offers the candidate plus + f(m - shift) + g(m) for m >= need.
func (e *envelope) sum(f, g curve, shift, need, plus int64) {
	if len(f) == 0 || len(g) == 0 {
		return
	}
	end := e.end(plus + f[len(f)-1].ticks + g[len(g)-1].ticks)
	p := pair{f: f, g: g, shift: shift, plus: plus}
	p.begin(max(need, f[0].bytes+shift, g[0].bytes))
	for k := 0; p.bytes < end; p.next() {
		for k+1 < len(e.best) && e.best[k+1].bytes <= p.bytes {
			k++
		}
		if p.ticks() < e.best[k].ticks {
			e.merge(p, k+1, end)
			return
		}
	}
}

// merge writes the new envelope: the first k steps stay, then come the lower ones of the old steps and of p.
func (e *envelope) merge(p pair, k int, end int64) {
	out := e.spare[:0]
	out = append(out, e.best[:k]...)
	for p.bytes < end || k < len(e.best) {
		next := step{p.bytes, p.ticks()}
		if p.bytes >= end || k < len(e.best) && e.best[k].bytes < p.bytes {
			next = e.best[k]
			k++
		} else {
			p.next()
		}
		if len(out) > 0 && next.ticks >= out[len(out)-1].ticks {
			continue
		}
		if len(out) > 0 && next.bytes == out[len(out)-1].bytes {
			out = out[:len(out)-1]
		}
		out = append(out, next)
	}
	e.best, e.spare = out, e.best
}

// pair walks the steps of plus + f(m - shift) + g(m).
type pair struct {
	f, g        curve
	shift, plus int64
	bytes       int64 // where the walk stands; math.MaxInt64 behind the last step
	i, j        int   // the steps of f and g that hold at bytes
}

// begin stands at m, at or above the first steps of both.
func (p *pair) begin(m int64) {
	p.bytes, p.i, p.j = m, p.f.index(m-p.shift), p.g.index(m)
}

func (p *pair) ticks() int64 { return p.plus + p.f[p.i].ticks + p.g[p.j].ticks }

// next goes to the next step of either curve.
func (p *pair) next() {
	const never = math.MaxInt64
	x, y := int64(never), int64(never)
	if p.i+1 < len(p.f) {
		x = p.f[p.i+1].bytes + p.shift
	}
	if p.j+1 < len(p.g) {
		y = p.g[p.j+1].bytes
	}
	p.bytes = min(x, y)
	if x == p.bytes && x != never {
		p.i++
	}
	if y == p.bytes && y != never {
		p.j++
	}
}
