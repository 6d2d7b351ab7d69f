package importer

import (
	"fmt"
	"slices"
)

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

// headsOfView returns the heads that a view of N,heads,T,D is, or of more axes ahead, or of one. Where their positions are in no sequence, such as
// those of windows of an image, they become one.
func headsOfView(c *call, v view) (heads, bool) {
	if h, is := headsOf(v); is {
		return h, is
	}
	return arrangedHeads(c, v)
}

// arrangedHeads makes a sequence of its own of the heads that a view is.
func arrangedHeads(c *call, v view) (h heads, is bool) {
	k := len(v.axes)
	if k == 3 { // N*heads,T,D
		shape, n := v.shape(), v.step.desc.Shape[0]
		if shape[0]%n != 0 {
			return h, false
		}
		w, err := v.reshape([]int{n, shape[0] / n, shape[1], shape[2]})
		if err != nil {
			return h, false
		}
		h, is = headsOfView(c, w)
		h.lead, h.leads = 1, shape[:1]
		return h, is
	}
	if k < 4 {
		return h, false
	}
	own, repeats := v.axes[k-3], []loop(nil)
	if n := len(own) - 1; n >= 0 && own[n].stride == 0 { // heads that are shared
		own, repeats = own[:n], own[n:]
	}
	axes := [][]loop{slices.Concat(v.axes[:k-3]...), v.axes[k-2], slices.Concat(own, v.axes[k-1])}
	if slices.ContainsFunc(slices.Concat(axes...), func(l loop) bool { return l.stride == 0 }) {
		return h, false
	}
	x, err := c.arranged(c.Node, view{step: v.step, from: v.from, axes: axes})
	if err != nil {
		return h, false
	}
	shape := v.shape()
	w, err := viewOfValue(x).reshape([]int{x.shape[0], x.shape[1], extent(own), shape[k-1]})
	if err != nil {
		return h, false
	}
	w.axes[1], w.axes[2] = append(w.axes[2], repeats...), w.axes[1]
	h, is = headsOf(w)
	h.lead, h.leads = k-2, shape[:k-2]
	return h, is
}

// regroup makes heads have as many samples: where heads lie one behind the other, each is a sample of its own otherwise.
func regroup(c *call, all ...*heads) error {
	least := all[0].samples
	for _, h := range all {
		least = min(least, h.samples)
		if h.lead > 1 {
			least = min(least, extents(h.leads[:h.lead-1]))
		}
	}
	for _, h := range all {
		if h.samples == least {
			continue
		}
		refused := fmt.Errorf("heads are of %d samples and of %d, which is not supported", least, h.samples)
		if h.samples*h.number%least != 0 {
			return refused
		}
		v, err := h.view().reshape([]int{least, h.samples * h.number / least, h.length, h.channels})
		if err != nil {
			return refused
		}
		made, is := arrangedHeads(c, v)
		if !is || made.samples != least {
			return refused
		}
		made.lead, made.leads, made.shared = h.lead, h.leads, h.shared
		*h = made
	}
	return nil
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
