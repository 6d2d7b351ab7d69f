package recompute

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Way is one way to run layers s..t of a minibatch. Bytes are counted beside a_{s-1}.
type Way struct {
	Kept  int64   // between F and B; 0 for a way that runs in B only
	Peak  int64   // most at any instant
	Again float64 // seconds beyond one forward_all and one backward of each layer
	// The way: with x = 0 a forward_all of layer s, the layers behind it by Way rest, the backward of s. Else layers s..x
	// run without saving, the layers behind x by Way rest, and then layers s..x once more by Way redo.
	x          int32
	rest, redo int32
}

// worth is the memory of a way for a stage with g minibatches in flight.
func (l Way) worth(g int) int64 { return int64(g-1)*l.Kept + l.Peak }

// Up to exactLayers layers all ways are kept that no other one beats in all of kept, peak and again. In longer chains
// mostWays ways are kept, of those that no other one beats in worth and again.
const (
	exactLayers = 9
	mostWays    = 24
)

// ways finds those of all ranges of a chain.
//
// Inside B, when δ_t is there, range s..t has the ways of rotor (thesis, Theorem 6; see package remat):
//
//	F^all_s, s+1..t, B_s          peak max(needAll, ā_s + rest)
//	F_s..F_x, x+1..t, s..x        peak max(δ_t + forwards, a_x + rest, redo); Again: forwards s..x
//
// A stage s..j whose F and B are apart has the same, with two differences. The rest of the pipeline comes between, so that x
// may be j, with nothing after it. Memory that is held between F and B of the rest is kept.
//
//	F^all_s                       kept ā_s + kept of the rest
//	F_s..F_x                      kept a_x + kept of the rest; nothing for x = j
//
// Time: O(L³·mostWays²) for ranges of at most L layers, and for each number of minibatches in flight as much again.
type ways struct {
	c     *chain.Chain
	k     *pipeline.Costs
	n     int
	limit int64     // no way above it is kept
	again []float64 // of forwards 1..l that save nothing
	redo  map[[2]int][]Way
	stage map[[3]int][]Way // by s, j and g
	// unpruned: every pair of ways is tried, of every stage: the reference of tests.
	unpruned bool
	ended    func() bool // no way is wanted any more; nil: some are
}

// over reports whether no way is wanted any more.
func (w *ways) over() bool { return w.ended != nil && w.ended() }

func newWays(k *pipeline.Costs, limit int64) *ways {
	w := &ways{c: k.Chain, k: k, n: k.Len(), limit: limit, redo: map[[2]int][]Way{}, stage: map[[3]int][]Way{}}
	w.again = make([]float64, w.n+1)
	for l := 1; l <= w.n; l++ {
		w.again[l] = w.again[l-1] + w.c.Layer(l).DiscardSeconds()
	}
	return w
}

// inside returns the ways of s..t inside B.
func (w *ways) inside(s, t int) []Way {
	key := [2]int{s, t}
	if have, ok := w.redo[key]; ok {
		return have
	}
	if w.over() {
		return nil
	}
	f := w.front(1)
	layer, grad := w.c.Layer(s), w.c.Gradient(t)
	all := layer.SavedBytes + max(grad+layer.ForwardOverheadBytes, w.c.Gradient(s)+w.c.Gradient(s-1)+layer.BackwardOverheadBytes)
	if s == t {
		f.add(Way{Peak: all})
	} else {
		for i, r := range w.inside(s+1, t) {
			f.add(Way{Peak: max(all, layer.SavedBytes+r.Peak), Again: r.Again, rest: int32(i)})
		}
	}
	need := int64(0)
	for x := s; x < t; x++ {
		need = max(need, w.forwardNeed(s, x))
		w.split(f, s, x, grad+need, 0, w.inside(x+1, t))
	}
	w.redo[key] = f.done()
	return w.redo[key]
}

// forwardNeed returns the bytes that F_x needs beside a_{s-1} in a run of forwards that save nothing and began with
// layer s.
func (w *ways) forwardNeed(s, x int) int64 {
	need := w.c.Activation(x) + w.c.Layer(x).DiscardOverhead()
	if x > s {
		need += w.c.Activation(x - 1)
	}
	return need
}

// split adds the ways that run s..x, then the rest, then s..x again. keeps is what of a_x is kept between F and B.
func (w *ways) split(f *front, s, x int, need, keeps int64, rest []Way) {
	repeat := w.again[x] - w.again[s-1]
	redo := w.inside(s, x)
	if len(redo) == 0 {
		return
	}
	before := w.c.Activation(x)
	for i, r := range rest {
		peak, again := max(need, before+r.Peak), repeat+r.Again
		best := Way{Kept: keeps + r.Kept, Peak: peak, Again: again + redo[len(redo)-1].Again}
		if _, beaten := f.beaten(best, best.worth(f.g)); !math.IsInf(beaten, 1) && !w.unpruned {
			continue
		}
		// In redo, peaks rise and seconds fall, so the last way within peak is the best of those within it. If the next rest keeps no more,
		// ways above that rest's peak are better with it.
		first, end := within(redo, peak), len(redo)
		if w.unpruned {
			first = 0
		} else if i+1 < len(rest) && rest[i+1].Kept <= r.Kept && rest[i+1].Again < r.Again {
			end = within(redo, max(need, before+rest[i+1].Peak)) + 1
		}
		for j := first; j < end; j++ {
			l := redo[j]
			beaten := f.add(Way{Kept: keeps + r.Kept, Peak: max(peak, l.Peak), Again: again + l.Again, x: int32(x), rest: int32(i), redo: int32(j)})
			// A way that beats this one also beats the ones behind it that are not faster.
			for !w.unpruned && j+1 < end && again+redo[j+1].Again >= beaten {
				j++
			}
		}
	}
}

// within returns the last position of a way with a peak of no more bytes, 0 when there is none.
func within(all []Way, bytes int64) int {
	at := sort.Search(len(all), func(i int) bool { return all[i].Peak > bytes })
	return max(0, at-1)
}

// of returns the ways of a stage s..j with g minibatches in flight, worth rising and again falling or, of short chains, in
// any number that the three figures allow.
func (w *ways) of(s, j, g int) []Way {
	key := [3]int{s, j, g}
	if have, ok := w.stage[key]; ok {
		return have
	}
	if w.over() {
		return nil
	}
	f := w.front(g)
	layer := w.c.Layer(s)
	back := layer.SavedBytes + w.c.Gradient(s) + w.c.Gradient(s-1) + layer.BackwardOverheadBytes
	all := max(layer.SavedBytes+layer.ForwardOverheadBytes, back)
	if s == j {
		f.add(Way{Kept: layer.SavedBytes, Peak: all})
	} else {
		for i, r := range w.of(s+1, j, g) {
			f.add(Way{Kept: layer.SavedBytes + r.Kept, Peak: max(all, layer.SavedBytes+r.Peak), Again: r.Again, rest: int32(i)})
		}
	}
	need := int64(0)
	for x := s; x < j; x++ {
		need = max(need, w.forwardNeed(s, x))
		w.split(f, s, x, need, w.c.Activation(x), w.of(x+1, j, g))
	}
	w.whole(f, s, j, max(need, w.forwardNeed(s, j)))
	w.stage[key] = f.done()
	return w.stage[key]
}

// whole adds the ways that keep nothing but the input of the stage.
func (w *ways) whole(f *front, s, j int, need int64) {
	for i, l := range w.inside(s, j) {
		f.add(Way{Peak: max(need, l.Peak), Again: w.again[j] - w.again[s-1] + l.Again, x: int32(j), redo: int32(i)})
	}
}

// fastest returns the fastest way of a stage s..j with g minibatches in flight, in the given bytes beside the inputs; ok is
// false when none fits.
func (w *ways) fastest(s, j, g int, bytes int64) (best int, ok bool) {
	all := w.of(s, j, g)
	best = -1
	for i, l := range all {
		if l.worth(g) <= bytes && (best < 0 || l.Again < all[best].Again) {
			best = i
		}
	}
	return best, best >= 0
}

// ops returns the sequence of a way of a stage.
func (w *ways) ops(s, j, g, number int) schedule.Sequence {
	l := w.of(s, j, g)[number]
	if l.x == 0 {
		seq := schedule.Sequence{{Kind: schedule.ForwardAll, Layer: s}}
		if s < j {
			seq = append(seq, w.ops(s+1, j, g, int(l.rest))...)
		}
		return append(seq, schedule.Op{Kind: schedule.Backward, Layer: s})
	}
	x := int(l.x)
	seq := forwards(s, x)
	if x < j {
		seq = append(seq, w.ops(x+1, j, g, int(l.rest))...)
	}
	return append(seq, w.opsInside(s, x, int(l.redo))...)
}

// opsInside returns the sequence of a way inside B.
func (w *ways) opsInside(s, t, number int) schedule.Sequence {
	l := w.inside(s, t)[number]
	if l.x == 0 {
		seq := schedule.Sequence{{Kind: schedule.ForwardAll, Layer: s}}
		if s < t {
			seq = append(seq, w.opsInside(s+1, t, int(l.rest))...)
		}
		return append(seq, schedule.Op{Kind: schedule.Backward, Layer: s})
	}
	x := int(l.x)
	seq := append(forwards(s, x), w.opsInside(x+1, t, int(l.rest))...)
	return append(seq, w.opsInside(s, x, int(l.redo))...)
}

// forwards returns F^ck_s, F_{s+1}, ..., F_x.
func forwards(s, x int) schedule.Sequence {
	seq := schedule.Sequence{{Kind: schedule.ForwardCheckpoint, Layer: s}}
	for l := s + 1; l <= x; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardDiscard, Layer: l})
	}
	return seq
}

// front is ways of which none beats another.
type front struct {
	g      int
	limit  int64
	exact  bool
	ways   []Way
	worths []int64 // of the ways; unless exact, rising
}

func (w *ways) front(g int) *front {
	return &front{g: g, limit: w.limit, exact: w.n <= exactLayers}
}

// beats reports whether x is as good as y in everything, where all ways are kept.
func (l Way) beats(y Way) bool {
	return l.Kept <= y.Kept && l.Peak <= y.Peak && l.Again <= y.Again
}

// beaten returns the position after all ways of no more worth, and the seconds of a way that is as good as y in everything.
// The seconds are +Inf when none is, and -Inf above the limit.
func (f *front) beaten(y Way, worth int64) (at int, again float64) {
	if worth > f.limit {
		return 0, math.Inf(-1)
	}
	at = f.after(worth)
	by := at - 1 // worth rises and again falls: the last one of no more worth is the best of these
	if f.exact {
		by = slices.IndexFunc(f.ways, func(x Way) bool { return x.beats(y) })
	}
	if by < 0 || f.ways[by].Again > y.Again {
		return at, math.Inf(1)
	}
	return at, f.ways[by].Again
}

// after returns the position behind all ways of no more worth.
func (f *front) after(worth int64) int {
	low, high := 0, len(f.worths)
	for low < high {
		if middle := int(uint(low+high) / 2); f.worths[middle] <= worth {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// add puts a way in unless one beats it, and returns what beaten does.
func (f *front) add(y Way) (again float64) {
	worth := y.worth(f.g)
	begin, again := f.beaten(y, worth)
	if !math.IsInf(again, 1) {
		return again
	}
	if f.exact {
		f.drop(y)
		begin = f.after(worth)
		f.replace(begin, begin, y, worth)
		return again
	}
	end := begin
	for end < len(f.ways) && f.ways[end].Again >= y.Again {
		end++
	}
	if begin > 0 && f.worths[begin-1] == worth {
		begin--
	}
	f.replace(begin, end, y, worth)
	return again
}

// drop removes what a way beats.
func (f *front) drop(y Way) {
	kept := 0
	for i, x := range f.ways {
		if !y.beats(x) {
			f.ways[kept], f.worths[kept] = x, f.worths[i]
			kept++
		}
	}
	f.ways, f.worths = f.ways[:kept], f.worths[:kept]
}

func (f *front) replace(begin, end int, y Way, worth int64) {
	f.ways, f.worths = slices.Replace(f.ways, begin, end, y), slices.Replace(f.worths, begin, end, worth)
}

// done returns the ways, worth rising, the last one the fastest: all of a short chain, else mostWays at most, the first
// and the last among them.
func (f *front) done() []Way {
	if f.exact || len(f.ways) <= mostWays {
		slices.SortStableFunc(f.ways, func(x, y Way) int {
			return cmp.Or(cmp.Compare(y.Again, x.Again), cmp.Compare(x.worth(f.g), y.worth(f.g)))
		})
		return slices.Clone(f.ways)
	}
	out := make([]Way, mostWays)
	for i := range out {
		out[i] = f.ways[i*(len(f.ways)-1)/(mostWays-1)]
	}
	return out
}
