package pofo

import "math"

// tails bounds the time of layers s..n beyond must, by the bytes in memory when F_s starts. The bound is the time of a plan
// for s..n that offloads nothing, with extra memory for the bytes that the link can move until the loss.
//
// A plan for s..n offloads at most D bytes until B_n starts. These can stay in D bytes more, and then its ops are those of
// Theorem 6: keep ā_s, or run F_s..F_t without saving and a segment after the loss. Sizes are rounded to cells so that nothing
// is bounded by more than it takes.
type tails struct {
	*costs
	limit float64
	cell  float64     // bytes
	times [][]float64 // least(s, m) for m rounded up to a cell, waiting for the link included
}

const tailCells = 2000

// tails fills the tables from those of the segments. O(n^2) sums of tables of tailCells entries.
func (g *segments) tails() *tails {
	t := &tails{costs: g.costs, limit: g.limit, times: make([][]float64, g.n+1)}
	total, most := 0.0, 0.0
	for l := 1; l <= g.n; l++ {
		total += g.saved[l]
		most = max(most, g.needAll[l], g.needBack[l])
	}
	t.cell = (total + most) / (tailCells - 1)
	stay := make([][]float64, g.n+1) // without the link
	for s := g.n; s >= 1; s-- {
		stay[s] = t.stay(g, s, stay)
	}
	for s := 1; s <= g.n; s++ {
		t.times[s] = t.wait(stay[s])
	}
	return t
}

// stay returns the least excess of s..n without transfers, by cells of memory beside the input of s.
func (t *tails) stay(g *segments, s int, later [][]float64) []float64 {
	best := make([]float64, tailCells)
	for m := range best {
		best[m] = math.Inf(1)
	}
	need := max(t.needAll[s], t.needBack[s])
	for m := t.up(need); m < tailCells; m++ {
		best[m] = 0
		if s < t.n {
			best[m] = later[s+1][t.up(float64(m)*t.cell-t.saved[s])]
		}
	}
	run, most := 0.0, 0.0 // of F_s..F_x
	for x := s; x < t.n; x++ {
		run += min(t.again[x]-t.again[x-1], t.all[x])
		most = max(most, t.needForward(s, x))
		t.split(best, g.at(s, x), later[x+1], run-t.must(s, x), t.a[x], most)
	}
	return best
}

// split lowers best to what F_s..F_x without saving, a part after the loss, and the layers behind take.
func (t *tails) split(best []float64, parts []part, later []float64, run, stored, most float64) {
	least, i := math.Inf(1), 0
	for m := t.up(most); m < tailCells; m++ {
		for ; i < len(parts) && parts[i].peak <= float64(m)*t.cell; i++ {
			least = min(least, parts[i].u)
		}
		if math.IsInf(least, 1) {
			continue
		}
		best[m] = min(best[m], run+least+later[t.up(float64(m)*t.cell-stored)])
	}
}

// up returns the cell of a size, rounded up; the last one for what is larger, or no number.
func (t *tails) up(bytes float64) int {
	switch cell := math.Ceil(bytes / t.cell * (1 + 1e-12)); {
	case cell <= 0:
		return 0
	case cell < tailCells:
		return int(cell)
	}
	return tailCells - 1
}

// wait returns the least of v + stay(m+v): time that is waited, or run again after the loss, is time in which the link moves.
func (t *tails) wait(stay []float64) []float64 {
	out := make([]float64, len(stay))
	behind := math.Inf(1)
	for m := len(stay) - 1; m >= 0; m-- {
		out[m] = min(stay[m], behind)
		behind = min(stay[m], t.cell+behind)
	}
	return out
}

// least returns by how much the layers from s on exceed must, at least, when stored bytes, with the input of s, are in
// memory or on their way out.
func (t *tails) least(s int, stored float64) float64 {
	return t.times[s][t.up(t.limit-stored+t.restAll[s])]
}
