package remat

import (
	"context"
	"fmt"
	"math/bits"
	"sort"

	"plimsoll/internal/parallel"
	"plimsoll/planner/schedule"
)

// inSlots returns the costs with every size in slots of memory/slots bytes, a fraction, rounded up; more than slots
// becomes slots+1, which fits nowhere. slots >= 1.
func (k *costs) inSlots(memory int64, slots int) *costs {
	r := *k
	for _, sizes := range []*[]int64{&r.a, &r.saved, &r.grad, &r.forwardOver, &r.discardOver, &r.backwardOver} {
		rounded := make([]int64, len(*sizes))
		for i, size := range *sizes {
			rounded[i] = slotsOf(size, memory, slots)
		}
		*sizes = rounded
	}
	return &r
}

// slotsOf returns ceil(size·slots/memory), at most slots+1.
func slotsOf(size, memory int64, slots int) int64 {
	if size == 0 {
		return 0
	}
	if size > memory {
		return int64(slots) + 1
	}
	hi, lo := bits.Mul64(uint64(size), uint64(slots))
	q, rest := bits.Div64(hi, lo, uint64(memory)) // size <= memory, so hi < memory
	if rest > 0 {
		q++
	}
	return int64(q)
}

// slotted is the table of Theorem 6 as Algorithm 3 has it: the excess of B_t..B_s for each s <= t and each number of
// slots beside a_{s-1}, δ_t included. The costs are in slots.
type slotted struct {
	*costs
	width int     // slots beside a_0, and one for m = 0
	table []int64 // C(s, t, m) at place(s, t)·width + m; rows never rise
	first []int32 // first[place(s, t)]: the least feasible m, width if none; below it the row means nothing
	need  []int64 // need[place(s, x)]: what the forwards s..x need beside a_{s-1} and the gradient
	// ceiling[place(s, t)] is the excess from which on C(s, t) is of no use.
	ceiling []int64
}

// infinite is the excess of what does not fit: three of them can be added.
const infinite = 1 << 60

// maxCells bounds the table: 8 bytes a cell.
const maxCells = 1 << 27

// tableSize returns the pairs of layers and the width of a table of slotted costs. Error: ErrTooLarge.
func tableSize(k *costs, slots int) (pairs, width int, err error) {
	width = max(0, slots-int(k.a[0])+1)
	pairs = k.n * (k.n + 1) / 2
	if width > 0 && pairs > maxCells/width {
		err = fmt.Errorf("%w: a table of %d layers (with the loss) and %d slots has more than %d cells: use fewer slots, or group layers",
			ErrTooLarge, k.n, slots, maxCells)
	}
	return pairs, width, err
}

func newSlotted(k *costs, slots int, cut int64) (*slotted, error) {
	pairs, width, err := tableSize(k, slots)
	if err != nil {
		return nil, err
	}
	p := &slotted{costs: k, width: width}
	p.table, p.first, p.need = make([]int64, pairs*width), make([]int32, pairs), k.needs()
	p.ceiling = k.ceilings(int64(width)-1, cut)
	return p, nil
}

func (p *slotted) row(s, t int) []int64 {
	i := p.place(s, t) * p.width
	return p.table[i : i+p.width : i+p.width]
}

// The table is filled in square tiles of edge² rows, depth splits of every row at a time. The 2·edge·depth rows that
// these are made from stay in the cache of a processor meanwhile.
const (
	edge  = 16
	depth = 8
)

// solve fills the table, a diagonal of tiles after the other. O(n^3·slots).
func (p *slotted) solve(ctx context.Context) error {
	tiles := (p.n + edge - 1) / edge
	for d := range tiles {
		err := parallel.For(ctx, tiles-d, func(_ *struct{}, i int) {
			p.tile(edge*i+1, min(edge*(i+1), p.n), edge*(i+d)+1, min(edge*(i+d+1), p.n))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tile fills C(s, t) for s0 <= s <= s1, t0 <= t <= t1. First come the splits into parts that both lie in finished
// tiles, depth values of x at a time. Then come the others, in the order in which their parts are finished.
func (p *slotted) tile(s0, s1, t0, t1 int) {
	for s := s0; s <= s1; s++ {
		for t := max(s, t0); t <= t1; t++ {
			p.start(s, t)
		}
	}
	for x := s1; x < t0; x += depth {
		for s := s0; s <= s1; s++ {
			for t := t0; t <= t1; t++ {
				p.splits(s, t, x, min(x+depth, t0))
			}
		}
	}
	for s := s1; s >= s0; s-- {
		for t := max(s, t0); t <= t1; t++ {
			p.finish(s, t, s1, t0)
		}
	}
}

// start makes the row too expensive everywhere.
func (p *slotted) start(s, t int) {
	place := p.place(s, t)
	p.first[place] = int32(p.width)
	if p.ceiling[place] <= 0 {
		return
	}
	row := p.row(s, t)
	for m := range row {
		row[m] = p.ceiling[place]
	}
}

// finish adds to C(s, t) the choices that depend on its own tile.
func (p *slotted) finish(s, t, s1, t0 int) {
	place := p.place(s, t)
	if p.ceiling[place] <= 0 {
		return
	}
	p.saves(s, t)
	p.splits(s, t, s, min(s1, t))
	p.splits(s, t, max(s1, t0), t)
	p.first[place] = int32(firstBelow(p.row(s, t), p.ceiling[place]))
}

// saves lowers C(s, t) by F^all_s.
func (p *slotted) saves(s, t int) {
	row, saved := p.row(s, t), int(p.saved[s])
	begin := int(min(p.needAll(s, t), int64(p.width)))
	if s == t {
		clear(row[begin:])
		return
	}
	begin = max(begin, int(p.first[p.place(s+1, t)])+saved)
	rest := p.row(s+1, t)
	for m := begin; m < p.width; m++ {
		row[m] = min(row[m], rest[m-saved])
	}
}

// splits lowers C(s, t) by the splits at from <= x < to.
func (p *slotted) splits(s, t, from, to int) {
	row, ceiling := p.row(s, t), p.ceiling[p.place(s, t)]
	for x := from; x < to; x++ {
		plus := p.repeat(s, x)
		if plus >= ceiling {
			return
		}
		f, g, shift := p.place(x+1, t), p.place(s, x), int(p.a[x])
		begin := max(int(min(p.grad[t]+p.need[g], int64(p.width))), int(p.first[f])+shift, int(p.first[g]))
		if begin >= p.width || row[begin] <= plus {
			continue
		}
		end := firstBelow(row, plus+1) // the row never rises: from here on it is not above what the split repeats
		lower(row[begin:end], p.row(x+1, t)[begin-shift:], p.row(s, x)[begin:], plus)
	}
}

// lower sets dst[i] = min(dst[i], f[i] + g[i] + plus), for rows that never rise. Stretches whose least candidate, the
// last, is not below their first value are skipped: long ones first, then short ones.
func lower(dst, f, g []int64, plus int64) {
	const long, short = 64, 16
	n := len(dst)
	f, g = f[:n], g[:n]
	i := 0
	for i+short <= n {
		if i+long <= n && f[i+long-1]+g[i+long-1]+plus >= dst[i] {
			i += long
			continue
		}
		if f[i+short-1]+g[i+short-1]+plus < dst[i] {
			lowerBlock((*[short]int64)(dst[i:]), (*[short]int64)(f[i:]), (*[short]int64)(g[i:]), plus)
		}
		i += short
	}
	for ; i < n; i++ {
		dst[i] = min(dst[i], f[i]+g[i]+plus)
	}
}

func lowerBlock(dst, f, g *[16]int64, plus int64) {
	for i := range dst {
		dst[i] = min(dst[i], f[i]+g[i]+plus)
	}
}

// firstBelow returns the first index of a row that never rises with a value below bound; its length if there is none.
func firstBelow(row []int64, bound int64) int {
	return sort.Search(len(row), func(i int) bool { return row[i] < bound })
}

// at returns C(s, t, m), infinite when it is not feasible.
func (p *slotted) at(s, t int, m int64) int64 {
	if m < int64(p.first[p.place(s, t)]) {
		return infinite
	}
	return p.row(s, t)[m]
}

// excess returns the least excess with all slots, infinite when nothing fits.
func (p *slotted) excess() int64 {
	if p.width == 0 {
		return infinite
	}
	return p.at(1, p.n, int64(p.width)-1)
}

// sequence returns Algorithm 4's sequence for all slots, nil when nothing fits. Each part gets the fewest slots at
// which it has its excess; of equal choices F^all is taken first, then the shortest run of forwards.
func (p *slotted) sequence() schedule.Sequence {
	if p.excess() == infinite {
		return nil
	}
	return p.build(nil, 1, p.n, int64(p.width)-1)
}

func (p *slotted) build(seq schedule.Sequence, s, t int, m int64) schedule.Sequence {
	if s == t {
		return append(seq, all(s), backward(s))
	}
	value := p.at(s, t, m)
	m = int64(firstBelow(p.row(s, t), value+1))
	if m >= p.needAll(s, t) && p.at(s+1, t, m-p.saved[s]) == value {
		seq = p.build(append(seq, all(s)), s+1, t, m-p.saved[s])
		return append(seq, backward(s))
	}
	x := p.choice(s, t, m, value)
	seq = p.build(run(seq, s, x), x+1, t, m-p.a[x])
	return p.build(seq, s, x, m)
}

// choice returns the first x whose split gives the value.
func (p *slotted) choice(s, t int, m, value int64) int {
	for x := s; x < t; x++ {
		if m >= p.grad[t]+p.need[p.place(s, x)] && p.repeat(s, x)+p.at(x+1, t, m-p.a[x])+p.at(s, x, m) == value {
			return x
		}
	}
	panic(fmt.Sprintf("BUG: no choice gives the value of C(%d,%d) at %d slots", s, t, m))
}
