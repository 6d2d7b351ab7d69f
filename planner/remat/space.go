package remat

import (
	"math"

	"plimsoll/planner/schedule"
)

// space is a problem of unrestricted search: from one state of memory to another, by the ops of some neighbouring layers, within a
// limit. The memory of other layers stays as it is. The whole chain is the space of all layers from a_0 to nothing.
//
// The excess of a sequence is the time of its forwards that save nothing. Only B_l removes ā_l from memory, so one forward_all of a
// layer is of use, and no sequence avoids it. Ops that no fastest sequence needs are left out. These are forwards of stored
// activations, and forwards with a result that only a layer above the gradient could read. A forward_discard that drops its input
// from below ā_l stays: the drop costs a forward, and after a forward_checkpoint it would have been free.
type space struct {
	*costs
	below int   // the layer below the first; index 0 of a state
	w     int   // layers
	top   int   // the gradient at the start
	limit int64 // bytes for gradient and held
	from  holding
	to    holding
	gap   gap // of rest
}

// holding says what is held of activations below..below+w, two bits each, and how many backwards have run since the start.
type holding uint64

const (
	heldBits  = 58
	maxWindow = heldBits/2 - 1 // layers of a space
)

func (s holding) hold(i int) store { return store(s >> (2 * i) & 3) }
func (s holding) backs() int       { return int(s >> heldBits) }

func (s holding) with(i int, what store) holding {
	return s&^(3<<(2*i)) | holding(what)<<(2*i)
}

// wholeSpace returns the space of a chain of at most maxWindow layers; limit includes a_0.
func (k *costs) wholeSpace(limit int64) *space {
	return &space{costs: k, w: k.n, top: k.n, limit: limit, from: holding(0).with(0, bare), to: holding(k.n) << heldBits}
}

func (p *space) gradient(s holding) int { return p.top - s.backs() }

func (p *space) size(i int, what store) int64 {
	switch what {
	case bare:
		return p.a[p.below+i]
	case full:
		return p.saved[p.below+i]
	}
	return 0
}

// used returns the bytes of a state.
func (p *space) used(s holding) int64 {
	sum := p.grad[p.gradient(s)]
	for i := range p.w + 1 {
		sum += p.size(i, s.hold(i))
	}
	return sum
}

// move is an op with the state it leaves and its part of the excess.
type move struct {
	op    schedule.Op
	to    holding
	ticks int64
}

// moves appends the ops that are worth trying in a state. A backward after which no more is held than before excludes all others:
// what they need is there afterwards, too.
func (p *space) moves(out []move, s holding) []move {
	room, g := p.limit-p.used(s), p.gradient(s)
	if back, ok := p.back(s, g, room); ok {
		if out = append(out, back); p.used(back.to) <= p.limit-room {
			return out
		}
	}
	for i := 1; i <= p.w && p.below+i <= g; i++ {
		if s.hold(i-1) != gone {
			out = p.forwards(out, s, i, g, room)
		}
	}
	return out
}

func (p *space) back(s holding, g int, room int64) (move, bool) {
	i := g - p.below
	if i > p.w || i < 1 || s.backs() == p.to.backs() || s.hold(i) != full || s.hold(i-1) == gone || p.grad[g-1]+p.backwardOver[g] > room {
		return move{}, false
	}
	to := s.with(i, gone) + 1<<heldBits
	if s.hold(i-1) == bare {
		to = to.with(i-1, gone)
	}
	return move{op: backward(g), to: to}, true
}

// forwards appends the forwards of the layer at index i, whose input is held.
func (p *space) forwards(out []move, s holding, i, g int, room int64) []move {
	l, own := p.below+i, s.hold(i)
	if own != full && p.saved[l]+p.forwardOver[l] <= room && p.saves(l, i) {
		out = append(out, move{op: all(l), to: s.with(i, full)})
	}
	if own == bare || own == gone && l == g || p.a[l]+p.discardOver[l] > room {
		return out
	}
	ticks := p.repeat(l, l)
	if s.hold(i-1) == bare && l > 1 {
		out = append(out, move{op: discard(l), to: s.with(i, max(own, bare)).with(i-1, gone), ticks: ticks})
	}
	if own == gone {
		out = append(out, move{op: checkpoint(l), to: s.with(i, bare), ticks: ticks})
	}
	return out
}

// saves reports whether ā_l leaves before the end, or is there at the end.
func (p *space) saves(l, i int) bool { return l > p.top-p.to.backs() || p.to.hold(i) == full }

// rest bounds the excess to come from below; false when the end cannot be reached.
//
// Take a backward B_k to come, and the layers between a_{k-1} and the next activation below it that is held. All of them run before
// B_k starts. Each either is saved until then, beside every ā_l below k that is saved now, or has run once without saving. The
// excess bytes cost at least the time of the cheapest forwards, fractions allowed. Layers between other activations that are held
// are other layers: these costs add up. The same holds for the start of F^all_k.
func (p *space) rest(s holding) (ticks int64, ok bool) {
	gap := p.gap[:0]
	kept, most, least := int64(0), int64(0), int64(math.MaxInt64)
	last, g := p.top-p.to.backs()-p.below, p.gradient(s)-p.below
	for k := max(last+1, 1); k <= min(g, p.w); k++ {
		least = min(least, p.grad[p.below+k])
	}
	for i := range p.w + 1 {
		if i > 0 && i > last && i <= g {
			need := p.need(s, i, least) + kept - p.limit
			now, ok := gap.least(need)
			if !ok {
				return 0, false
			}
			most = max(most, now)
		}
		switch what := s.hold(i); {
		case what != gone:
			ticks, most = ticks+most, 0
			gap = gap[:0]
			if what == full || p.below+i == 0 {
				kept += p.size(i, what)
			}
		case i > 0:
			gap = gap.add(p.costs, p.below+i)
		}
	}
	p.gap = gap
	return ticks + most, true
}

// need returns the bytes that B_k, or F^all_k if it is to come, needs beside the saved sets below k. The smallest possible gradient is
// least.
func (p *space) need(s holding, i int, least int64) int64 {
	l := p.below + i
	need := p.grad[l] + p.grad[l-1] + p.backwardOver[l]
	if s.hold(i) != full {
		need = max(need, p.forwardOver[l]+least)
	}
	if in := s.hold(i - 1); in != full && l > 1 {
		need += p.a[l-1]
	}
	return need + p.saved[l]
}

// gap is the layers between two activations that are held: none of them is. They are in the order of ticks for each byte, but for the
// uppermost, which is the last one.
type gap []rerun

// rerun holds the bytes that a layer frees when it is not saved, and the time that this costs.
type rerun struct {
	bytes, input int64 // ā_l; the part of it that stays when the next layer runs, a_l
	ticks        int64
}

// add puts a layer above the others.
func (x gap) add(k *costs, l int) gap {
	for at := len(x) - 1; at > 0 && x[at].cheaper(x[at-1]); at-- {
		x[at], x[at-1] = x[at-1], x[at]
	}
	return append(x, rerun{k.saved[l], k.a[l], k.repeat(l, l)})
}

func (r rerun) cheaper(o rerun) bool {
	return float64(r.ticks)*float64(o.bytes) < float64(o.ticks)*float64(r.bytes)
}

// least returns the least time of forwards again that make room, given what an op needs above its room when no layer of the gap is
// saved. It returns false when that is too much.
func (x gap) least(over int64) (ticks int64, ok bool) {
	if over > 0 || len(x) == 0 {
		return 0, over <= 0
	}
	last := x[len(x)-1]
	last.bytes -= last.input
	others := x[:len(x)-1]
	left := float64(over + last.bytes)
	for _, r := range others {
		left += float64(r.bytes)
	}
	spent, before := 0.0, 0
	for ; left > 0 && before < len(others) && !last.cheaper(others[before]); before++ {
		left, spent = others[before].leaves(left, spent)
	}
	left, spent = last.leaves(left, spent)
	for _, r := range others[before:] {
		left, spent = r.leaves(left, spent)
	}
	return int64(math.Ceil(spent * (1 - 1e-12))), true // it is whole; rounding must not raise it
}

// leaves returns the rest of the given bytes, and the time spent, when the layer is not saved.
func (r rerun) leaves(left, spent float64) (float64, float64) {
	if left <= 0 || r.bytes == 0 {
		return left, spent
	}
	share := min(1, left/float64(r.bytes))
	return left - float64(r.bytes), spent + share*float64(r.ticks)
}
