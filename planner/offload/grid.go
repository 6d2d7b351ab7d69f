package offload

import "math"

// grid merges states that fall into the same cell: a hash table with open addressing, whose memory is used again for
// every layer.
type grid struct {
	slots []int32 // position in cells plus 1; 0 when empty; a power of two of them
	cells []occupied
	keep  []bool // which states stay
}

// cell is the place of a state in the grid.
type cell struct{ kept, forward, backward float64 }

// occupied is a cell with the positions of the two states that stay.
type occupied struct {
	cell
	cheap, light int32
}

// cellOf rounds a state down to its cell; side 0 makes a cell of every value.
func cellOf(s *state, side float64) cell {
	if side == 0 {
		return cell{s.kept, s.forward, s.backward}
	}
	return cell{math.Floor(s.kept / side), math.Floor(s.forward / side), math.Floor(s.backward / side)}
}

// hash mixes the three coordinates; equal cells have equal hashes, and so have 0 and -0.
func (c cell) hash() uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := math.Float64bits(c.kept+0) * odd
	h = (h ^ h>>29 ^ math.Float64bits(c.forward+0)) * odd
	h = (h ^ h>>29 ^ math.Float64bits(c.backward+0)) * odd
	return h ^ h>>32
}

// merge appends to out, in their order, two states of each cell: the cheapest, and the one that keeps the least. It
// doubles the side of the cells until at most maxStates are in use, and returns the side; with side 0 all stay.
func (g *grid) merge(out, all []entry, side float64) ([]entry, float64) {
	for !g.fill(all, side) {
		side *= 2
	}
	g.keep = append(g.keep[:0], make([]bool, len(all))...)
	for i := range g.cells {
		g.keep[g.cells[i].cheap], g.keep[g.cells[i].light] = true, true
	}
	for j, keep := range g.keep {
		if keep {
			out = append(out, all[j])
		}
	}
	return out, side
}

// fill puts all states into their cells; false when that takes too many cells.
func (g *grid) fill(all []entry, side float64) bool {
	g.reset(len(all))
	for j := range all {
		s := &all[j].state
		c := g.find(cellOf(s, side), int32(j))
		if less(s.idle, s.kept, all[c.cheap].idle, all[c.cheap].kept) {
			c.cheap = int32(j)
		}
		if less(s.kept, s.idle, all[c.light].kept, all[c.light].idle) {
			c.light = int32(j)
		}
		if len(g.cells) > maxStates && side > 0 {
			return false
		}
	}
	return true
}

func (g *grid) reset(states int) {
	size := 16
	for size < 2*states {
		size *= 2
	}
	g.cells = g.cells[:0]
	if size > len(g.slots) {
		g.slots = make([]int32, size)
		return
	}
	clear(g.slots)
}

// find returns the cell, which state j is the first to occupy if it is new.
func (g *grid) find(c cell, j int32) *occupied {
	mask := uint64(len(g.slots) - 1)
	for at := c.hash() & mask; ; at = (at + 1) & mask {
		if g.slots[at] == 0 {
			g.cells = append(g.cells, occupied{c, j, j})
			g.slots[at] = int32(len(g.cells))
			return &g.cells[len(g.cells)-1]
		}
		if o := &g.cells[g.slots[at]-1]; o.cell == c {
			return o
		}
	}
}

// less compares pairs by their first numbers and, of equals, their second.
func less(x1, x2, y1, y2 float64) bool { return x1 < y1 || x1 == y1 && x2 < y2 }
