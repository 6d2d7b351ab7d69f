package importer

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// turned is a part of what turns heads by their positions: heads, or their halves exchanged and one of them negative, times a table of
// positions and channels.
type turned struct {
	of     *value // heads, N,H,T,D
	halves bool
	table  []float64 // T,D; nil: not yet
	sines  []float64 // of the sum: the table of halves; nil: it is no sum. Only heads whose other channels are not turned have one
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
	if k, is := linear(x.curve.at); !is || !near(k, -1) {
		return nil
	}
	first, second, n := *y.view, *x.curve.of.view, len(y.view.axes)-1
	loops := first.axes[n]
	if len(loops) == 0 && second.from > first.from { // halves of one channel
		loops = []loop{{1, second.from - first.from}}
	}
	if len(loops) != 1 || first.from+loops[0].n*loops[0].stride != second.from {
		return nil
	}
	if second.from = first.from; !second.same(first) {
		return nil
	}
	first.axes = slices.Clone(first.axes)
	first.axes[n] = []loop{{2 * loops[0].n, loops[0].stride}}
	whole := c.seen(first)
	return &value{turned: &turned{of: whole, halves: true}, shape: whole.shape, from: c.Node}
}

// timesTable is heads, or their halves, times a constant of positions and channels; nil: it is something else.
func timesTable(c *call, x, y *value) *value {
	if x == nil || y == nil || x.view == nil && x.turned == nil || x.turned != nil && (x.turned.table != nil || x.turned.sines != nil) || len(x.shape) != 4 || y.numbers == nil || y.tensor != nil {
		return nil
	}
	k := len(y.dims)
	if k < 2 || extents(y.dims) != y.dims[k-2]*y.dims[k-1] || !slices.Equal(y.dims[k-2:], x.shape[2:]) {
		return nil
	}
	t := turned{of: x, table: y.numbers}
	if x.turned != nil {
		t.of, t.halves = x.turned.of, true
	}
	return &value{turned: &t, shape: x.shape, from: c.Node}
}

// rotary is the sum of heads times cosines and of their halves times sines; nil, without an error: it is something else.
func rotary(c *call, x, y *value) (*value, error) {
	if x == nil || y == nil || x.turned == nil || y.turned == nil || x.turned.halves || x.turned.sines != nil || !y.turned.halves || y.turned.table == nil || !x.turned.of.is(y.turned.of) {
		return nil, nil
	}
	h, is := headsOf(*x.turned.of.view)
	if !is || h.lead != 2 { // a part of heads, perhaps
		t := turned{of: x.turned.of, table: x.turned.table, sines: y.turned.table}
		return &value{turned: &t, shape: x.shape, from: c.Node}, nil
	}
	return turn(c, h, x, x.turned.table, y.turned.table)
}

// turnedPart is heads of which the first channels were turned, input 0, and the others were not, input 1; nil, without an error: they are something
// else.
func turnedPart(c *call, axis int) (*value, error) {
	if len(c.In) != 2 {
		return nil, nil
	}
	x, rest := c.at(0), c.at(1)
	if x == nil || x.turned == nil || x.turned.sines == nil || rest == nil || rest.view == nil || len(rest.view.axes) != 4 || positive(axis, 4) != 3 {
		return nil, nil
	}
	first, own := *x.turned.of.view, last(x.shape)
	whole := first
	whole.axes = slices.Clone(first.axes)
	whole.axes[3] = merged([]loop{{own + last(rest.shape), 1}})
	isPart := func(v view, from, n int) bool {
		part, err := whole.slice(3, from, n)
		return err == nil && part.same(v)
	}
	if !isPart(first, 0, own) || !isPart(*rest.view, own, last(rest.shape)) {
		return nil, nil
	}
	h, is := headsOf(whole)
	if !is || h.lead != 2 {
		return nil, fmt.Errorf("positions turn a part of %v, which is no heads, N,heads,T,D, of a sequence", whole.shape())
	}
	return turn(c, h, &value{view: &whole, shape: whole.shape()}, x.turned.table, x.turned.sines)
}

// turn adds the op that turns heads, seen as x, by tables of cosines and sines.
func turn(c *call, h heads, x *value, cosines, sines []float64) (*value, error) {
	op := kernels.Rotary{Heads: h.number, Dim: h.channels, Turned: len(cosines) / h.length}
	var err error
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
	w, err := whole.view().reshape(x.shape)
	if err != nil {
		return nil, err
	}
	return c.seen(w), nil
}

// rotaryBase returns the base of the angles whose cosines and sines two tables of positions and channels have: position t turns pair i by
// t*base^(-2i/channels), the pairs are i and i + channels/2.
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
