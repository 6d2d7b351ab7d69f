package importer

import "slices"

// heads are N,H,T,D, or N*H,T,D, of a sequence N,T,C: H heads of D channels from the first channel on.
type heads struct {
	step                        *step
	from, number, channels, all int // all: channels of the step
	lead                        int // axes that are N and H
}

// headsOf returns the heads that a view is.
func headsOf(v view) (h heads, is bool) {
	axes := len(v.axes)
	if len(v.step.desc.Shape) != 3 || axes != 3 && axes != 4 {
		return h, false
	}
	n, t, c := v.step.desc.Shape[0], v.step.desc.Shape[1], v.step.desc.Shape[2]
	shape := v.shape()
	d := shape[axes-1]
	h = heads{step: v.step, from: v.from, number: extent(slices.Concat(v.axes[:axes-2]...)) / n, channels: d, all: c, lead: axes - 2}
	want := view{step: v.step, from: v.from, axes: [][]loop{merged([]loop{{n, t * c}, {h.number, d}}), merged([]loop{{t, c}}), merged([]loop{{d, 1}})}}
	have := v
	have.axes = [][]loop{merged(slices.Concat(v.axes[:axes-2]...)), v.axes[axes-2], v.axes[axes-1]}
	return h, have.same(want) && h.from < c
}

// keysOf returns the heads of keys, whose last two axes are the other way round.
func keysOf(v view) (heads, bool) {
	n := len(v.axes)
	if n < 2 {
		return heads{}, false
	}
	v.axes = slices.Clone(v.axes)
	v.axes[n-1], v.axes[n-2] = v.axes[n-2], v.axes[n-1]
	return headsOf(v)
}
