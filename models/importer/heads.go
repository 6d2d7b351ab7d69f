package importer

import "slices"

// heads are N,H,T,D, or N*H,T,D, of a sequence N,T,C: H heads of D channels from the first channel on.
type heads struct {
	step                        *step
	from, number, channels, all int   // all: channels of the step
	lead                        int   // axes that are N and H
	samples, length             int   // N and T
	shared                      int   // heads that a head is repeated as
	leads                       []int // the extents of the lead axes
}

// view returns heads as N,H,T,D.
func (h heads) view() view {
	row := h.all
	return view{step: h.step, from: h.from, axes: [][]loop{
		merged([]loop{{h.samples, h.length * row}}), merged([]loop{{h.number, h.channels}}), merged([]loop{{h.length, row}}), merged([]loop{{h.channels, 1}}),
	}}
}

// sequenceOf returns the tensor N,T,C that heads are of: the step's, or where that has other axes, one of its own.
func (c *call) sequenceOf(h heads) (*value, error) {
	if slices.Equal(h.step.desc.Shape, []int{h.samples, h.length, h.all}) {
		return &value{step: h.step, shape: slices.Clone(h.step.desc.Shape)}, nil
	}
	return c.arranged(c.Node, view{step: h.step, axes: [][]loop{
		merged([]loop{{h.samples, h.length * h.all}}), merged([]loop{{h.length, h.all}}), merged([]loop{{h.all, 1}}),
	}})
}

// headsOfView returns the heads that a view of N,heads,T,D is, or of more axes ahead. Where their positions are in no sequence, such as those of
// windows of an image, they become one.
func headsOfView(c *call, v view) (heads, bool) {
	h, is := headsOf(v)
	k := len(v.axes)
	if is || k < 4 {
		return h, is
	}
	axes := [][]loop{slices.Concat(v.axes[:k-3]...), v.axes[k-2], slices.Concat(v.axes[k-3], v.axes[k-1])}
	if slices.ContainsFunc(slices.Concat(axes...), func(l loop) bool { return l.stride == 0 }) {
		return h, false
	}
	x, err := c.arranged(c.Node, view{step: v.step, from: v.from, axes: axes})
	if err != nil {
		return h, false
	}
	shape := v.shape()
	w, err := viewOfValue(x).reshape([]int{x.shape[0], x.shape[1], shape[k-3], shape[k-1]})
	if err != nil {
		return h, false
	}
	w.axes[1], w.axes[2] = w.axes[2], w.axes[1]
	h, is = headsOf(w)
	h.lead, h.leads = k-2, shape[:k-2]
	return h, is
}

// keysOfView returns the heads of keys, whose last two axes are the other way round.
func keysOfView(c *call, v view) (heads, bool) {
	n := len(v.axes)
	if n < 2 {
		return heads{}, false
	}
	v.axes = slices.Clone(v.axes)
	v.axes[n-1], v.axes[n-2] = v.axes[n-2], v.axes[n-1]
	return headsOfView(c, v)
}

// headsOf returns the heads that a view is: of a sequence of as many samples and positions as the view has.
func headsOf(v view) (h heads, is bool) {
	axes := len(v.axes)
	if axes < 3 {
		return h, false
	}
	shape := v.shape()
	n, t, d := v.step.desc.Shape[0], shape[axes-2], shape[axes-1]
	if rows := v.axes[axes-2]; len(rows) == 1 && rows[0].stride > 0 {
		n = int(v.step.desc.Elements()) / (t * rows[0].stride)
	}
	loops, shared := merged(slices.Concat(v.axes[:axes-2]...)), 1
	if k := len(loops) - 1; k >= 0 && loops[k].stride == 0 {
		loops, shared = loops[:k], loops[k].n
	}
	lead := extent(loops)
	if own := v.step.desc.Elements(); n < 1 || lead%n != 0 || own%int64(n*t) != 0 {
		return h, false
	}
	c := int(v.step.desc.Elements() / int64(n*t))
	h = heads{step: v.step, from: v.from, number: lead / n, channels: d, all: c, lead: axes - 2, samples: n, length: t, shared: shared, leads: shape[:axes-2]}
	want := view{step: v.step, from: v.from, axes: [][]loop{merged([]loop{{n, t * c}, {h.number, d}}), merged([]loop{{t, c}}), merged([]loop{{d, 1}})}}
	have := v
	have.axes = [][]loop{loops, v.axes[axes-2], v.axes[axes-1]}
	return h, have.same(want) && h.from < c
}
