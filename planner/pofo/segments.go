package pofo

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"plimsoll/internal/parallel"
)

// segments answers C_Δ(s, t, A, Δ) of section 4.2.3. It is the shortest time of B_t..B_s from the input of s and δ_t
// alone, while Δ bytes are prefetched that must be there at the end.
//
// The thesis tabulates it over cells of A and Δ. Here it is exact. By Lemma 8 the time of a fixed sequence of ops, with
// room = M - A, is max(u, w - (room - Δ)) if peak <= room. Its time without waiting is u, and the most memory that an op
// needs is peak. The third number, w, is u + the most that an op needs less the link's bytes after it. So a sequence is
// three numbers, and an entry of the table is the set of those that no other beats in all three. (Times are bytes; see
// costs.)
type segments struct {
	*costs
	limit   float64   // M
	excess  float64   // whole plans that take longer than must by more are of no use
	reach   []int     // reach[s] is the last layer of segments from s that matter; nil: all
	cells   int       // an entry keeps at most three sequences for each of so many cells of memory
	ceiling []float64 // see ceilings
	table   [][]part
}

// part is a way to run a segment.
type part struct {
	peak, u, w  float64 // beside the input of s
	x           int32   // 0: F^all_s first; else F_s..F_x save nothing and a_x is kept
	right, left int32   // positions of the parts of (x+1, t), or (s+1, t) after F^all_s, and of (s, x)
}

func (g *segments) place(s, t int) int { return (s-1)*(2*g.n+2-s)/2 + t - s }

func (g *segments) at(s, t int) []part { return g.table[g.place(s, t)] }

// solve fills the table for segments that end before the loss, diagonal by diagonal.
func (g *segments) solve(ctx context.Context) error {
	g.table, g.ceiling = make([][]part, g.n*(g.n+1)/2), g.ceilings()
	for d := range g.n - 1 {
		err := parallel.For(ctx, g.n-1-d, func(f *front, i int) {
			g.table[g.place(i+1, i+1+d)] = g.entry(f, i+1, i+1+d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *segments) entry(f *front, s, t int) []part {
	ceiling := g.ceiling[g.place(s, t)]
	if ceiling < 0 || g.reach != nil && t > g.reach[s] {
		return nil
	}
	f.reset(g.cells, g.limit-g.a[s-1], g.must(s, t)+ceiling)
	g.startAll(f, s, t)
	need := math.Inf(-1) // of F_s..F_x, less what the link moves after them
	most := 0.0
	for x := s; x < t; x++ {
		here := g.grad[t] + g.needForward(s, x)
		most = max(most, here)
		if x > s {
			need -= g.again[x] - g.again[x-1]
		}
		need = max(need, here)
		g.split(f, s, x, t, most, need)
	}
	return f.take()
}

// startAll adds the sequences that begin with F^all_s.
func (g *segments) startAll(f *front, s, t int) {
	first, last := g.grad[t]+g.needAll[s], g.needBack[s]
	if s == t {
		u := g.all[s] + g.back[s]
		f.add(part{peak: max(first, last), u: u, w: u + max(first-g.back[s], last)})
		return
	}
	for i, r := range g.at(s+1, t) {
		u := g.all[s] + r.u + g.back[s]
		inner := g.saved[s] + r.w - r.u - g.back[s]
		f.add(part{
			peak: max(first, g.saved[s]+r.peak, last), u: u,
			w: u + max(first-r.u-g.back[s], inner, last), right: int32(i),
		})
	}
}

// split adds the parts that begin with F_s..F_x, need most bytes there, and keep a_x. The bytes that they need, less the
// link's bytes until the last of them has ended, are need. Of the parts that do not raise the peak of one that they join only
// those matter that no other of them beats in u and w.
func (g *segments) split(f *front, s, x, t int, most, need float64) {
	begin := g.again[x] - g.again[s-1]
	left, right := g.at(s, x), g.at(x+1, t)
	join := func(i, j int) {
		r, l := &right[i], &left[j]
		u := begin + r.u + l.u
		w := u + max(l.w-l.u, g.a[x]+r.w-r.u-l.u, need-r.u-l.u)
		f.add(part{max(most, g.a[x]+r.peak, l.peak), u, w, int32(x), int32(i), int32(j)})
	}
	f.joined = f.joined[:0]
	for i, j := 0, 0; i < len(right); i++ {
		for ; j < len(left) && left[j].peak <= max(most, g.a[x]+right[i].peak); j++ {
			f.joined.add(left[j].u, left[j].w, j)
		}
		for _, l := range f.joined {
			if begin+right[i].u+l.u > f.longest {
				break
			}
			join(i, l.index)
		}
	}
	f.joined = f.joined[:0]
	for i, j := 0, 0; j < len(left); j++ {
		for ; i < len(right) && max(most, g.a[x]+right[i].peak) < left[j].peak; i++ {
			f.joined.add(right[i].u, right[i].w, i)
		}
		for _, r := range f.joined {
			if begin+r.u+left[j].u > f.longest {
				break
			}
			join(r.index, j)
		}
	}
}

// best returns C_Δ and the part that has it, when what is in the queue must be there at the end; infinite and -1 when
// nothing fits in room.
func (g *segments) best(s, t int, room float64, q *queue) (cost float64, index int) {
	cost, index = math.Inf(1), -1
	for i, p := range g.at(s, t) {
		if p.peak > room {
			break
		}
		if p.u >= cost {
			continue
		}
		if c := p.u + q.wait(p.w-p.u-room+q.total); c < cost {
			cost, index = c, i
		}
	}
	return cost, index
}

// front is the set of parts that no other beats, while an entry is made.
type front struct {
	cells          int
	limit, longest float64
	parts          []part
	sorted         int     // the first so many parts are a front, in order of peak
	guard          []guard // by cell of peak: a part that beats most others of higher cells
	least, width   float64
	stairs         staircase // of tidy
	joined         staircase // of split
}

type guard struct{ u, w float64 }

func (f *front) reset(cells int, limit, longest float64) {
	f.cells, f.limit, f.longest = cells, limit, longest
	f.parts, f.sorted, f.guard = f.parts[:0], 0, f.guard[:0]
}

// pending is how many parts for each cell are collected before they are sorted; below it a front is exact.
const pending = 80

func (f *front) add(p part) {
	if p.peak > f.limit || p.u > f.longest {
		return
	}
	if len(f.guard) > 0 {
		if g := f.guard[f.cell(p.peak)]; g.u <= p.u && g.w <= p.w {
			return
		}
	}
	f.parts = append(f.parts, p)
	if len(f.parts) >= f.sorted+pending*f.cells {
		f.tidy()
		f.thin()
	}
}

// cell returns the cell of a peak; guards know only parts of lower cells, or of lower peak.
func (f *front) cell(peak float64) int {
	return max(0, min(f.cells-1, int((peak-f.least)/f.width)))
}

// compare orders parts by what they cost, then by how they were made. Mostly the first two comparisons decide.
func (p part) compare(q part) int {
	switch {
	case p.peak < q.peak:
		return -1
	case p.peak > q.peak:
		return 1
	case p.u < q.u:
		return -1
	case p.u > q.u:
		return 1
	}
	return cmp.Or(cmp.Compare(p.w, q.w), cmp.Compare(p.x, q.x), cmp.Compare(p.right, q.right), cmp.Compare(p.left, q.left))
}

// tidy sorts and drops what another part beats.
func (f *front) tidy() {
	slices.SortFunc(f.parts, part.compare)
	f.stairs = f.stairs[:0]
	keep := f.parts[:0]
	for i, p := range f.parts {
		if f.stairs.add(p.u, p.w, i) {
			keep = append(keep, p)
		}
	}
	f.parts = keep
}

// watch sets the guards: for every cell the part with the lowest u + w below it.
func (f *front) watch() {
	f.least = f.parts[0].peak
	f.width = max((f.limit-f.least)/float64(f.cells), 1)
	f.guard = append(f.guard[:0], make([]guard, f.cells)...)
	none := guard{math.Inf(1), math.Inf(1)}
	i, best := 0, none
	for c := range f.guard {
		for ; i < len(f.parts) && f.cell(f.parts[i].peak) < c; i++ {
			if p := f.parts[i]; p.u+p.w < best.u+best.w {
				best = guard{p.u, p.w}
			}
		}
		f.guard[c] = best
	}
}

// take returns the front.
func (f *front) take() []part {
	f.tidy()
	f.thin()
	return slices.Clone(f.parts)
}

// thin sets the guards, and if there are more than three parts a cell keeps three: the lowest peak, u, and w.
func (f *front) thin() {
	if len(f.parts) == 0 {
		return
	}
	f.watch()
	if len(f.parts) <= 3*f.cells {
		f.sorted = len(f.parts)
		return
	}
	keep := f.parts[:0]
	for i := 0; i < len(f.parts); {
		c, end := f.cell(f.parts[i].peak), i
		u, w := i, i
		for ; end < len(f.parts) && f.cell(f.parts[end].peak) == c; end++ {
			if f.parts[end].u < f.parts[u].u {
				u = end
			}
			if f.parts[end].w < f.parts[w].w {
				w = end
			}
		}
		kept := []int{i, u, w}
		slices.Sort(kept)
		for _, j := range slices.Compact(kept) {
			keep = append(keep, f.parts[j])
		}
		i = end
	}
	f.parts, f.sorted = keep, len(keep)
}

// staircase holds pairs of which none is at most another in both numbers: first rising, second falling.
type staircase []stair

type stair struct {
	u, w  float64
	index int
}

// add reports whether no pair was at most (u, w), and then puts it in.
func (s *staircase) add(u, w float64, index int) bool {
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].u >= u })
	if i < len(*s) && (*s)[i].u == u && (*s)[i].w <= w || i > 0 && (*s)[i-1].w <= w {
		return false
	}
	end := i
	for end < len(*s) && (*s)[end].w >= w {
		end++
	}
	*s = slices.Replace(*s, i, end, stair{u, w, index})
	return true
}
