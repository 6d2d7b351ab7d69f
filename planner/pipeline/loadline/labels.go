package loadline

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// label is one way to run layers s..t of a minibatch. Bytes are counted beside a_{s-1}.
type label struct {
	kept  int64   // between F and B; 0 for a way that runs in B only
	peak  int64   // most at any instant
	again float64 // seconds beyond one forward_all and one backward of each layer
	// The way: with x = 0 a forward_all of layer s, the layers behind it by label rest, the backward of s. Else layers s..x
	// run without saving, the layers behind x by label rest, and then layers s..x once more by label redo.
	x          int32
	rest, redo int32
}

// worth is what a label costs a stage with g minibatches in flight.
func (l label) worth(g int) int64 { return int64(g-1)*l.kept + l.peak }

// Up to exactLayers layers all labels are kept that no other one beats in all of kept, peak and again; in longer chains
// mostLabels of those that no other one beats in worth and again.
const (
	exactLayers = 9
	mostLabels  = 24
)

// ways finds the labels of all ranges of a chain.
//
// Inside B, when δ_t is there, range s..t has the labels of rotor (thesis, Theorem 6; see package remat):
//
//	F^all_s, s+1..t, B_s          peak max(needAll, ā_s + rest)
//	F_s..F_x, x+1..t, s..x        peak max(δ_t + forwards, a_x + rest, redo); again: forwards s..x
//
// A stage s..j whose F and B are apart has the same, with two differences: the rest of the pipeline stands between, so that x
// may be j, with nothing behind it; and what stands between F and B of the rest is kept.
//
//	F^all_s                       kept ā_s + kept of the rest
//	F_s..F_x                      kept a_x + kept of the rest; nothing for x = j
//
// Time: O(L³·mostLabels²) for ranges of at most L layers, and for each number of minibatches in flight as much again.
type ways struct {
	c     *chain.Chain
	k     *pipeline.Costs
	n     int
	limit int64     // no label above it is kept
	again []float64 // of forwards 1..l that save nothing
	redo  map[[2]int][]label
	stage map[[3]int][]label // by s, j and g
	// unpruned: every pair of labels is tried, of every stage: the reference of tests.
	unpruned bool
}

func newWays(k *pipeline.Costs, limit int64) *ways {
	w := &ways{c: k.Chain, k: k, n: k.Len(), limit: limit, redo: map[[2]int][]label{}, stage: map[[3]int][]label{}}
	w.again = make([]float64, w.n+1)
	for l := 1; l <= w.n; l++ {
		w.again[l] = w.again[l-1] + w.c.Layer(l).DiscardSeconds()
	}
	return w
}

// inside returns the labels of s..t inside B.
func (w *ways) inside(s, t int) []label {
	key := [2]int{s, t}
	if have, ok := w.redo[key]; ok {
		return have
	}
	f := w.front(1)
	layer, grad := w.c.Layer(s), w.c.Gradient(t)
	all := layer.SavedBytes + max(grad+layer.ForwardOverheadBytes, w.c.Gradient(s)+w.c.Gradient(s-1)+layer.BackwardOverheadBytes)
	if s == t {
		f.add(label{peak: all})
	} else {
		for i, r := range w.inside(s+1, t) {
			f.add(label{peak: max(all, layer.SavedBytes+r.peak), again: r.again, rest: int32(i)})
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

// forwardNeed returns what F_x needs beside a_{s-1} in a run of forwards that save nothing and began with layer s.
func (w *ways) forwardNeed(s, x int) int64 {
	need := w.c.Activation(x) + w.c.Layer(x).DiscardOverhead()
	if x > s {
		need += w.c.Activation(x - 1)
	}
	return need
}

// split adds the labels that run s..x, then the rest, then s..x again. keeps is what of a_x is kept between F and B.
func (w *ways) split(f *front, s, x int, need, keeps int64, rest []label) {
	repeat := w.again[x] - w.again[s-1]
	redo := w.inside(s, x)
	if len(redo) == 0 {
		return
	}
	before := w.c.Activation(x)
	for i, r := range rest {
		peak, again := max(need, before+r.peak), repeat+r.again
		best := label{kept: keeps + r.kept, peak: peak, again: again + redo[len(redo)-1].again}
		if _, beaten := f.beaten(best, best.worth(f.g)); !math.IsInf(beaten, 1) && !w.unpruned {
			continue
		}
		// Of what runs again, peaks rise and seconds fall: of those within peak the last one is the best, and those above the next
		// rest's peak are better with that, if it keeps no more.
		first, end := within(redo, peak), len(redo)
		if w.unpruned {
			first = 0
		} else if i+1 < len(rest) && rest[i+1].kept <= r.kept && rest[i+1].again < r.again {
			end = within(redo, max(need, before+rest[i+1].peak)) + 1
		}
		for j := first; j < end; j++ {
			l := redo[j]
			beaten := f.add(label{kept: keeps + r.kept, peak: max(peak, l.peak), again: again + l.again, x: int32(x), rest: int32(i), redo: int32(j)})
			// What beats it beats those behind it, too, that are not faster.
			for !w.unpruned && j+1 < end && again+redo[j+1].again >= beaten {
				j++
			}
		}
	}
}

// within returns the last position of a label with a peak of no more bytes, 0 when there is none.
func within(labels []label, bytes int64) int {
	at := sort.Search(len(labels), func(i int) bool { return labels[i].peak > bytes })
	return max(0, at-1)
}

// of returns the labels of a stage s..j with g minibatches in flight, worth rising and again falling or, of short chains, in
// any number that the three figures allow.
func (w *ways) of(s, j, g int) []label {
	key := [3]int{s, j, g}
	if have, ok := w.stage[key]; ok {
		return have
	}
	f := w.front(g)
	layer := w.c.Layer(s)
	back := layer.SavedBytes + w.c.Gradient(s) + w.c.Gradient(s-1) + layer.BackwardOverheadBytes
	all := max(layer.SavedBytes+layer.ForwardOverheadBytes, back)
	if s == j {
		f.add(label{kept: layer.SavedBytes, peak: all})
	} else {
		for i, r := range w.of(s+1, j, g) {
			f.add(label{kept: layer.SavedBytes + r.kept, peak: max(all, layer.SavedBytes+r.peak), again: r.again, rest: int32(i)})
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

// whole adds the labels that keep nothing but the input of the stage.
func (w *ways) whole(f *front, s, j int, need int64) {
	for i, l := range w.inside(s, j) {
		f.add(label{peak: max(need, l.peak), again: w.again[j] - w.again[s-1] + l.again, x: int32(j), redo: int32(i)})
	}
}

// fastest returns the label of a stage s..j that takes the least time with g minibatches in flight in so many bytes beside the
// inputs; ok is false when none fits.
func (w *ways) fastest(s, j, g int, bytes int64) (best int, ok bool) {
	labels := w.of(s, j, g)
	best = -1
	for i, l := range labels {
		if l.worth(g) <= bytes && (best < 0 || l.again < labels[best].again) {
			best = i
		}
	}
	return best, best >= 0
}

// ops returns the sequence of a label of a stage.
func (w *ways) ops(s, j, g, label int) schedule.Sequence {
	l := w.of(s, j, g)[label]
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

// opsInside returns the sequence of a label inside B.
func (w *ways) opsInside(s, t, label int) schedule.Sequence {
	l := w.inside(s, t)[label]
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

// front is labels of which none beats another.
type front struct {
	g      int
	limit  int64
	exact  bool
	labels []label
	worths []int64 // of the labels; unless exact, rising
}

func (w *ways) front(g int) *front {
	return &front{g: g, limit: w.limit, exact: w.n <= exactLayers}
}

// beats reports whether x is as good as y in everything, where all labels are kept.
func (l label) beats(y label) bool {
	return l.kept <= y.kept && l.peak <= y.peak && l.again <= y.again
}

// beaten returns the position behind all labels of no more worth, and the seconds of a label that is as good as y in everything:
// +Inf when none is, -Inf above the limit.
func (f *front) beaten(y label, worth int64) (at int, again float64) {
	if worth > f.limit {
		return 0, math.Inf(-1)
	}
	at = f.after(worth)
	by := at - 1 // worth rises and again falls: the last one of no more worth is the best of these
	if f.exact {
		by = slices.IndexFunc(f.labels, func(x label) bool { return x.beats(y) })
	}
	if by < 0 || f.labels[by].again > y.again {
		return at, math.Inf(1)
	}
	return at, f.labels[by].again
}

// after returns the position behind all labels of no more worth.
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

// add puts a label in unless one beats it, and returns what beaten does.
func (f *front) add(y label) (again float64) {
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
	for end < len(f.labels) && f.labels[end].again >= y.again {
		end++
	}
	if begin > 0 && f.worths[begin-1] == worth {
		begin--
	}
	f.replace(begin, end, y, worth)
	return again
}

// drop removes what a label beats.
func (f *front) drop(y label) {
	kept := 0
	for i, x := range f.labels {
		if !y.beats(x) {
			f.labels[kept], f.worths[kept] = x, f.worths[i]
			kept++
		}
	}
	f.labels, f.worths = f.labels[:kept], f.worths[:kept]
}

func (f *front) replace(begin, end int, y label, worth int64) {
	f.labels, f.worths = slices.Replace(f.labels, begin, end, y), slices.Replace(f.worths, begin, end, worth)
}

// done returns the labels, worth rising, the last one the fastest: all of a short chain, else mostLabels at most, the first
// and the last among them.
func (f *front) done() []label {
	if f.exact || len(f.labels) <= mostLabels {
		slices.SortStableFunc(f.labels, func(x, y label) int {
			return cmp.Or(cmp.Compare(y.again, x.again), cmp.Compare(x.worth(f.g), y.worth(f.g)))
		})
		return slices.Clone(f.labels)
	}
	out := make([]label, mostLabels)
	for i := range out {
		out[i] = f.labels[i*(len(f.labels)-1)/(mostLabels-1)]
	}
	return out
}
