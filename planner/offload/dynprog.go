package offload

// offload-dynprog: the best set of activations to offload when memory is freed while a transfer runs, by dynamic programming.
//
// Paper: A. Shilova, thesis, section 3.3.3, Algorithm 5, with errata 2, 3, 7 and 8 of the chapter; N = 500 cells as in
// section 3.3.3.2.
//
// A state is (A, Δ_F, Δ_B) with the least idle time that leads to it. States that fall into the same cell, of side
// M/N, are merged: the cheapest stays, and the one that keeps the least. Unlike in section 3.3.3.2 a state keeps its exact
// values, only the cells are coarse. So nothing that fits is lost to rounding, no rounded size has to be corrected
// and solved again, and the value found is the exact cost of a selection. The discretization is iterative in
// another sense: coarse cells come first, and what costs more than the best selection known is dropped before it
// is spread further (see fractional.atLeast). Where a layer has more than maxStates cells in use, cells grow.
//
// Many selections share the least cost, and they differ as sequences, in which memory is freed only when a
// transfer has ended (erratum 7). So the best finalStates are made sequences, judged by simulation, and the best of
// these are improved by changing one activation, or two, at a time.
//
// Complexity: O(L·N^3) states at most, as in Theorem 10; the cap makes it O(L·maxStates), and few are ever used.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// DefaultCells is N of the thesis.
const DefaultCells = 500

// maxCells bounds N, so that the three coordinates of a cell fit into a key.
const maxCells = 1 << 16

// coarsest is the number of cells of the first run.
const coarsest = 8

// maxStates bounds the states of a layer, and with it time and memory.
const maxStates = 1 << 15

// finalStates is how many selections of the program are made sequences.
const finalStates = 64

func solveDynprog(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	cells := p.Slots
	if cells == 0 {
		cells = DefaultCells
	}
	if cells < 0 || cells > maxCells {
		return nil, fmt.Errorf("%w: %d slots: offload-dynprog takes 1 to %d", ErrOptions, cells, maxCells)
	}
	return solve(ctx, "offload-dynprog", p, func(ctx context.Context, s *search) error {
		d := newDynprog(s.fractional)
		if err := d.refine(ctx, cells); err != nil {
			return err
		}
		selections := [][]bool{s.greedySelection()}
		for _, f := range d.found {
			selections = append(selections, f.away)
		}
		return s.improveBest(ctx, selections)
	})
}

// dynprog is Algorithm 5 for one problem.
type dynprog struct {
	*fractional
	found  []selection // the best seen, the best first; never empty
	layers [][]link
	grid   grid
}

// selection says which activations are offloaded, and what that costs with fractional communications.
type selection struct {
	away  []bool
	idle  float64 // bytes
	moved float64 // bytes offloaded
}

// link leads from a state back to the one it comes from.
type link struct {
	from int32 // position in the layer before
	away bool
}

// entry is a state with its way back.
type entry struct {
	state
	link
}

// newDynprog starts with the selections of the first activations.
func newDynprog(f *fractional) *dynprog {
	d := &dynprog{fractional: f}
	for count := range f.n + 1 {
		away := f.first(count)
		if idle := f.evaluate(away); !math.IsInf(idle, 1) {
			d.found = append(d.found, selection{away, idle, f.below[count]})
		}
	}
	d.rank()
	return d
}

// refine solves with ever finer cells; what one run finds bounds the next. When no selection can be cheaper than the
// best one found, the finest cells are next: they show the most of those that are as good.
func (d *dynprog) refine(ctx context.Context, cells int) error {
	least := d.eager(d.peak()-d.memory) + d.slack()
	for n := min(cells, coarsest); n < cells && d.found[0].idle > least; n *= 4 {
		if err := d.solve(ctx, d.memory/float64(n)); err != nil {
			return err
		}
	}
	return d.solve(ctx, d.memory/float64(cells))
}

// slack is the most that sums of float64 may round away, in bytes.
func (d *dynprog) slack() float64 { return 1e-12 * (d.memory + d.work[1] + d.below[d.n+1]) }

// solve runs Algorithm 5 with cells of the given side, in bytes; 0 merges equal states only.
func (d *dynprog) solve(ctx context.Context, side float64) error {
	d.layers = d.layers[:0]
	now, next := []entry{{}}, []entry(nil)
	used := side
	for i := 1; i <= d.n; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		next = d.spread(next[:0], now, i)
		now, used = d.grid.merge(now[:0], next, max(side, used/2))
		links := make([]link, len(now))
		for j := range now {
			links[j] = now[j].link
		}
		d.layers = append(d.layers, links)
	}
	d.collect(now)
	return nil
}

// spread appends to next both choices for ā_{i-1} after every state, as far as they can lead to something that is
// worth it.
func (d *dynprog) spread(next, now []entry, i int) []entry {
	limit := d.found[0].idle*(1+1e-12) + d.slack()
	choices := []float64{0, d.saved[i-1]}
	if d.saved[i-1] == 0 {
		choices = choices[:1]
	}
	for j := range now {
		for c, away := range choices {
			if s, ok := d.step(now[j].state, i, away); ok && s.idle+d.atLeast(s, i+1) <= limit {
				next = append(next, entry{s, link{int32(j), c == 1}})
			}
		}
	}
	return next
}

// collect adds the best final states to what was found.
func (d *dynprog) collect(final []entry) {
	type end struct {
		entry int
		selection
	}
	ends := make([]end, len(final))
	for j := range final {
		s := &final[j].state
		ends[j] = end{j, selection{idle: s.idle + d.junction(*s), moved: d.below[d.n] - s.kept}}
	}
	slices.SortFunc(ends, func(x, y end) int { return cmp.Or(x.compare(y.selection), cmp.Compare(x.entry, y.entry)) })
	for _, e := range ends[:min(len(ends), finalStates)] {
		e.away = d.trace(e.entry)
		d.found = append(d.found, e.selection)
	}
	d.rank()
}

// compare prefers less idle time, then fewer bytes.
func (x selection) compare(y selection) int {
	return cmp.Or(cmp.Compare(x.idle, y.idle), cmp.Compare(x.moved, y.moved))
}

// rank keeps the best selections, each once.
func (d *dynprog) rank() {
	slices.SortStableFunc(d.found, selection.compare)
	d.found = slices.CompactFunc(d.found, func(x, y selection) bool { return slices.Equal(x.away, y.away) })
	d.found = d.found[:min(len(d.found), finalStates)]
}

// trace follows the links back from a final state.
func (d *dynprog) trace(j int) []bool {
	away := make([]bool, d.n)
	for i := d.n; i >= 1; i-- {
		l := d.layers[i-1][j]
		away[i-1], j = l.away, int(l.from)
	}
	return away
}
