package importer

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// turned is a part of what turns heads by their positions: heads, or their pairs exchanged and one of each negative, times a table of
// positions and channels.
type turned struct {
	of        *value // heads, N,H,T,D or N,T,H,D
	exchanged bool
	pairs     bool      // channels 2i and 2i+1 are a pair, as in GPT-J; else i and i + D/2
	positions int       // the axis of the tables' positions
	table     []float64 // T,D; nil: not yet
	sines     []float64 // of the sum: the table of exchanged pairs; nil: it is no sum
}

// half is heads whose halves of channels are exchanged, the first one then negative: what Concat makes of a negative part and another one;
// nil: it is something else.
func half(c *call, axis int) *value {
	if len(c.In) != 2 {
		return nil
	}
	x, y := c.at(0), c.at(1)
	if x == nil || y == nil || x.curve == nil || x.curve.of.view == nil || y.view == nil || positive(axis, len(y.view.axes)) != len(y.view.axes)-1 {
		return nil
	}
	if k, is := x.curve.linear(); !is || !near(k, -1) {
		return nil
	}
	first, second, n := *y.view, *x.curve.of.view, len(y.view.axes)-1
	t := turned{exchanged: true}
	loops := first.axes[n]
	if len(loops) == 0 && second.from > first.from { // halves of one channel, or pairs that are stacked
		loops = []loop{{1, second.from - first.from}}
		t.pairs = n == 4
	}
	if len(loops) != 1 || first.from+loops[0].n*loops[0].stride != second.from {
		return nil
	}
	if second.from = first.from; !second.same(first) {
		return nil
	}
	first.axes = slices.Clone(first.axes)
	first.axes[n] = []loop{{2 * loops[0].n, loops[0].stride}}
	t.of = c.seen(first)
	return &value{turned: &t, shape: t.of.shape, from: c.Node}
}

// reshapedPairs joins the last two axes of pairs that are exchanged, which makes channels of them.
func reshapedPairs(c *call, x *value, want []int) (*value, error) {
	k := len(x.shape)
	if t := x.turned; t.pairs && t.exchanged && t.table == nil && k == 5 && slices.Equal(want, append(slices.Clone(x.shape[:3]), x.shape[3]*2)) {
		v, err := t.of.seen().reshape(want)
		if err != nil {
			return nil, err
		}
		v.axes[3] = merged(v.axes[3])
		return &value{turned: &turned{of: c.seen(v), exchanged: true, pairs: true}, shape: want, from: c.Node}, nil
	}
	return nil, fmt.Errorf("of a part of a rotary embedding, by %s, from %v to %v", x.from.Label, x.shape, want)
}

// timesTable is heads, or exchanged pairs of them, times a constant of positions and channels; nil: it is something else.
func timesTable(c *call, x, y *value) *value {
	if x == nil || y == nil || x.view == nil && x.turned == nil && !x.isImage() || x.turned != nil && (x.turned.table != nil || x.turned.sines != nil) || len(x.shape) != 4 || y.numbers == nil || y.tensor != nil {
		return nil
	}
	dims := y.dims
	for len(dims) < 4 {
		dims = slices.Insert(slices.Clone(dims), 0, 1)
	}
	t := turned{of: x, table: y.numbers, positions: 2}
	if len(dims) == 4 && dims[2] == 1 && x.shape[2] != 1 {
		t.positions = 1
	}
	if len(dims) != 4 || extents(dims) != dims[t.positions]*dims[3] || dims[t.positions] != x.shape[t.positions] || dims[3] != x.shape[3] {
		return nil
	}
	if x.turned != nil {
		t.of, t.exchanged, t.pairs = x.turned.of, true, x.turned.pairs
	}
	return &value{turned: &t, shape: x.shape, from: c.Node}
}

// rotary is the sum of heads times cosines and of their exchanged pairs times sines; nil: it is something else.
func rotary(c *call, x, y *value) *value {
	if x == nil || y == nil || x.turned == nil || y.turned == nil {
		return nil
	}
	a, b := x.turned, y.turned
	if a.exchanged || a.sines != nil || !b.exchanged || b.table == nil || a.positions != b.positions || !a.of.is(b.of) {
		return nil
	}
	t := turned{of: a.of, pairs: b.pairs, positions: a.positions, table: a.table, sines: b.table}
	return &value{turned: &t, whole: func() (*value, error) { return t.view(c) }, shape: x.shape, from: c.Node}
}

// turnedPart is heads of which the first channels were turned, input 0, and the others were not, input 1; nil, without an error: they are something
// else.
func turnedPart(c *call, axis int) (*value, error) {
	if len(c.In) != 2 {
		return nil, nil
	}
	x, rest := c.at(0), c.at(1)
	if x == nil || x.turned == nil || x.turned.sines == nil || x.turned.pairs || rest == nil || rest.view == nil || len(rest.view.axes) != 4 || positive(axis, 4) != 3 {
		return nil, nil
	}
	first, own := x.turned.of.seen(), last(x.shape)
	if len(first.axes[3]) > 1 {
		return nil, nil
	}
	whole := first
	whole.axes = slices.Clone(first.axes)
	stride := 1
	if len(first.axes[3]) == 1 {
		stride = first.axes[3][0].stride
	}
	whole.axes[3] = merged([]loop{{own + last(rest.shape), stride}})
	isPart := func(v view, from, n int) bool {
		part, err := whole.slice(3, from, n)
		return err == nil && part.same(v)
	}
	if !isPart(first, 0, own) || !isPart(*rest.view, own, last(rest.shape)) {
		return nil, nil
	}
	t := *x.turned
	t.of = &value{view: &whole, shape: whole.shape()}
	return t.view(c)
}

// swapped returns a view with two axes exchanged.
func (v view) swapped(i, j int) view {
	v.axes = slices.Clone(v.axes)
	v.axes[i], v.axes[j] = v.axes[j], v.axes[i]
	return v
}

// apart returns a view whose channels 2i come ahead of channels 2i+1.
func (v view) apart() (view, bool) {
	k := len(v.axes) - 1
	if len(v.axes[k]) != 1 {
		return v, false
	}
	l := v.axes[k][0]
	v.axes = slices.Clone(v.axes)
	v.axes[k] = merged([]loop{{2, l.stride}, {l.n / 2, 2 * l.stride}})
	return v, true
}

// view adds the op that turns heads by tables of cosines and sines. Pairs of neighbouring channels are set apart for it, and counted back.
func (t *turned) view(c *call) (*value, error) {
	v, cosines, sines := t.of.seen(), t.table, t.sines
	if t.positions == 1 {
		v = v.swapped(1, 2)
	}
	shape := v.shape()
	op := kernels.Rotary{Heads: shape[1], Dim: shape[3], Turned: len(cosines) / shape[2]}
	if t.pairs {
		var is bool
		if v, is = v.apart(); !is || op.Turned != op.Dim {
			return nil, fmt.Errorf("positions turn pairs of %v, which are no channels of heads", shape)
		}
		cosines, sines = columnsApart(cosines, op.Dim), columnsApart(sines, op.Dim)
	}
	h, is := headsOfView(c, v)
	if !is || h.lead != 2 || h.shared != 1 {
		return nil, fmt.Errorf("positions turn %v, which is no heads, N,heads,T,D, of a sequence", shape)
	}
	var err error
	op.Heads = h.number
	if op.Base, err = rotaryBase(cosines, sines, op.Turned); err != nil {
		return nil, err
	}
	if op.Turned == op.Dim {
		op.Turned = 0
	}
	whole := h
	if own := h.number * h.channels; h.from != 0 || h.all != own {
		x, err := c.arranged(c.Node, view{step: h.step, from: h.from, axes: [][]loop{
			merged([]loop{{h.samples, h.length * h.all}}), merged([]loop{{h.length, h.all}}), merged([]loop{{own, 1}}),
		}})
		if err != nil {
			return nil, err
		}
		whole.step, whole.from, whole.all = x.step, 0, own
	}
	s, err := c.sequenceOf(whole)
	if err != nil {
		return nil, err
	}
	made, err := c.push(c.Node, op, asImage, nil, s)
	if err != nil {
		return nil, err
	}
	whole.step = made.step
	w, err := whole.view().reshape(shape)
	if err != nil {
		return nil, err
	}
	if t.pairs {
		w.axes[3] = merged([]loop{{op.Dim / 2, 1}, {2, op.Dim / 2}})
	}
	if t.positions == 1 {
		w = w.swapped(1, 2)
	}
	return c.seen(w), nil
}

// columnsApart returns a table of n columns whose columns 2i come ahead of columns 2i+1.
func columnsApart(table []float64, n int) []float64 {
	all := make([]float64, len(table))
	for i := range all {
		row, k := i/n*n, i%n
		all[i] = table[row+k%(n/2)*2+k/(n/2)]
	}
	return all
}

// sameChannels returns queries and keys whose channels are in the same order, another one than those of a tensor, in the tensor's: products
// of the two are the same.
func sameChannels(q, k view) (view, view) {
	n := len(q.axes) - 1
	if n != len(k.axes)-1 || len(q.axes[n]) < 2 || !slices.Equal(q.axes[n], k.axes[n]) {
		return q, k
	}
	loops := slices.Clone(q.axes[n])
	slices.SortFunc(loops, func(a, b loop) int { return b.stride - a.stride })
	if loops = merged(loops); len(loops) != 1 {
		return q, k
	}
	q.axes, k.axes = slices.Clone(q.axes), slices.Clone(k.axes)
	q.axes[n], k.axes[n] = loops, loops
	return q, k
}

// rotaryBase returns the base of the angles whose cosines and sines two tables of positions and channels have. Position t turns pair i by
// t*base^(-2i/channels), and a pair is channels i and i + channels/2.
func rotaryBase(cosines, sines []float64, channels int) (float64, error) {
	pairs, base := channels/2, 10000.0
	if pairs > 1 && len(sines) > channels {
		at := channels + 1 // position 1, pair 1
		base = math.Pow(math.Atan2(sines[at], cosines[at]), -float64(pairs))
		if whole := math.Round(base); math.Abs(base-whole) <= 1e-4*whole { // it is of float32
			base = whole
		}
	}
	if channels%2 != 0 || !(base > 1) || len(cosines) != len(sines) {
		return 0, fmt.Errorf("a table of angles for %d channels has a base of %v, which is not supported", channels, base)
	}
	for i := range cosines {
		t, pair := float64(i/channels), float64(i%channels%pairs)
		angle := t * math.Pow(base, -2*pair/float64(channels))
		if math.Abs(cosines[i]-math.Cos(angle))+math.Abs(sines[i]-math.Sin(angle)) > 2e-5*(1+t) {
			return 0, fmt.Errorf("position %v and pair %v are turned otherwise than by t*%v^(-2i/%d), which alone is supported: build the model without rope_scaling", t, pair, base, channels)
		}
	}
	return base, nil
}
