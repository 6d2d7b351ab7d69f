package improve

import (
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Gap is a time in which the input of Layer is away from the device. It leaves after compute op From, which may still
// read it, and is back for compute op To, From < To, which reads it. Positions are those of a sequence of compute ops.
type Gap struct {
	Layer, From, To int

	bytes int64 // what it moves
}

// Transfers says before which compute op the transfers of a gap stand, From of the gap or later for the offload.
type Transfers struct {
	Layer             int
	Offload, Prefetch int
}

// Merge puts transfers into a sequence of compute ops. At one position prefetches stand before offloads, so that what is
// back for an op can leave behind it again, and each kind in the order given.
func Merge(compute schedule.Sequence, moves []Transfers) schedule.Sequence {
	before := make([][]schedule.Op, len(compute)+1)
	for _, m := range moves {
		before[m.Prefetch] = append(before[m.Prefetch], schedule.Op{Kind: schedule.Prefetch, Layer: m.Layer})
	}
	for _, m := range moves {
		before[m.Offload] = append(before[m.Offload], schedule.Op{Kind: schedule.Offload, Layer: m.Layer})
	}
	seq := make(schedule.Sequence, 0, len(compute)+2*len(moves))
	for i, op := range compute {
		seq = append(append(seq, before[i]...), op)
	}
	return seq
}

// Place makes sequences of compute ops and gaps. Every offload runs as early as it may, in order of the gaps'
// beginnings. Every prefetch runs as late as it can without a wait. The latest time is found in reversed time, in which
// a prefetch is an offload: its bytes are free when it has ended, and an op waits for them.
//
// Prefetches that would begin before the op at turn (the loss) compete with offloads for the link, which the reversed
// time does not see. Place returns a sequence for each boundary up to turn behind which these can be held back; the
// caller simulates. The last one prefetches directly before the op that reads, which may be slow but always runs. The gaps must be such that the sequence keeps the rules. limits.Memory must hold every op when
// transfers take no time; otherwise there is none.
func Place(c *chain.Chain, compute schedule.Sequence, gaps []Gap, turn int, limits schedule.Limits) []schedule.Sequence {
	gaps = slices.Clone(gaps)
	slices.SortStableFunc(gaps, func(a, b Gap) int { return a.From - b.From })
	var m Meter
	r := reversed{c: c, compute: compute, gaps: gaps, limits: limits, memory: m.Memory(c, compute, gaps)}
	if r.bytes = m.moved; r.memory == nil || !r.run() {
		return nil
	}
	moves := r.transfers()
	var out []schedule.Sequence
	for _, bound := range boundaries(moves, turn) {
		held := slices.Clone(moves)
		for i, m := range held {
			if m.Prefetch < bound {
				held[i].Prefetch = min(bound, r.before(m.Layer, m.Offload))
			}
		}
		out = append(out, Merge(compute, held))
	}
	for i, m := range moves {
		moves[i].Prefetch = r.before(m.Layer, m.Offload)
	}
	return append(out, Merge(compute, moves))
}

// maxBoundaries bounds the sequences of one Place.
const maxBoundaries = 12

// boundaries returns the positions from the first prefetch to turn, at most maxBoundaries of them.
func boundaries(moves []Transfers, turn int) []int {
	first := turn
	for _, m := range moves {
		first = min(first, m.Prefetch)
	}
	out := []int{first}
	for k := 1; k < maxBoundaries && turn > first; k++ {
		if b := first + (turn-first)*k/(maxBoundaries-1); b > out[len(out)-1] {
			out = append(out, b)
		}
	}
	return out
}

// reversed is the run of Place in reversed time.
type reversed struct {
	c       *chain.Chain
	compute schedule.Sequence
	gaps    []Gap
	limits  schedule.Limits
	memory  []int64 // of each op when transfers take no time
	bytes   []int64 // of what each gap moves
	queue   []arrival
	order   []arrival // those that have found their place, the last prefetch first
	now     float64
	link    float64 // when the link is free
	held    int64   // bytes of the queue
}

// arrival is a prefetch on its way, in reversed time.
type arrival struct {
	gap, place int
	bytes      int64
	done       float64
}

// run reports whether every op fits.
func (r *reversed) run() bool {
	for i := len(r.compute) - 1; i >= 0; i-- {
		r.enqueue(i + 1)
		for r.memory[i]+r.held > r.limits.Memory {
			if len(r.queue) == 0 {
				return false
			}
			r.now = max(r.now, r.queue[0].done)
			r.release(i + 1)
		}
		r.release(i + 1)
		r.now += r.compute[i].Seconds(r.c)
		r.clamp(i)
	}
	return true
}

// enqueue starts the prefetches that must have ended before op p.
func (r *reversed) enqueue(p int) {
	for g, gap := range r.gaps {
		if gap.To == p {
			bytes := r.bytes[g]
			r.link = max(r.link, r.now) + float64(bytes)/r.limits.Link.Bandwidth
			r.queue = append(r.queue, arrival{gap: g, bytes: bytes, done: r.link})
			r.held += bytes
		}
	}
}

// release ends the transfers whose time has come; they stand before op p.
func (r *reversed) release(p int) {
	for len(r.queue) > 0 && r.queue[0].done <= r.now {
		r.settle(0, p)
	}
}

// clamp ends those whose gap begins with op i.
func (r *reversed) clamp(i int) {
	for k := 0; k < len(r.queue); {
		if r.gaps[r.queue[k].gap].From == i {
			r.settle(k, i+1)
		} else {
			k++
		}
	}
}

func (r *reversed) settle(k, place int) {
	a := r.queue[k]
	a.place = place
	r.order = append(r.order, a)
	r.held -= a.bytes
	r.queue = slices.Delete(r.queue, k, k+1)
}

// transfers returns the moves in order of the prefetches; Merge sorts nothing, so offloads are ordered by position only.
func (r *reversed) transfers() []Transfers {
	var out []Transfers
	for _, a := range slices.Backward(r.order) {
		gap := r.gaps[a.gap]
		out = append(out, Transfers{Layer: gap.Layer, Offload: gap.From, Prefetch: a.place})
	}
	return out
}

// before returns the last position at which the prefetch of the gap may stand.
func (r *reversed) before(layer, from int) int {
	i := slices.IndexFunc(r.gaps, func(g Gap) bool { return g.Layer == layer && g.From == from })
	return r.gaps[i].To
}
