package importer

import (
	"fmt"
	"slices"
)

// view is the elements of a sequence in another order, or some of them: what Reshape, Transpose, Split, Slice and Gather make of it. It
// is no tensor of its own. Attention reads heads through views, and Linear rows; other ops what is a tensor again.
type view struct {
	step *step
	from int      // the first element
	axes [][]loop // an index along an axis counts through its loops, the last one fastest
}

// loop is n elements that are stride apart.
type loop struct{ n, stride int }

// viewOf returns the view of all of a step, its axes those of the step.
func viewOf(s *step) view {
	shape := s.desc.Shape
	v, stride := view{step: s, axes: make([][]loop, len(shape))}, 1
	for i, n := range slices.Backward(shape) {
		v.axes[i] = merged([]loop{{n, stride}})
		stride *= n
	}
	return v
}

// batchFirst reports whether the first axis is that of the samples, or begins with it: the loop around all others.
func (v *view) batchFirst() bool {
	first := v.axes[0]
	return len(first) == 0 || first[0].n*first[0].stride == int(v.step.desc.Elements())
}

// viewOfValue returns the view of all of a step's value, its axes those of PyTorch: N,C,H,W of an image, N,C,1,1 of the mean of one.
func viewOfValue(v *value) view {
	w := viewOf(v.step)
	switch {
	case len(w.axes) == 4:
		w.axes = [][]loop{w.axes[0], w.axes[3], w.axes[1], w.axes[2]}
	case len(v.shape) > len(w.axes):
		w.axes = append(w.axes, make([][]loop, len(v.shape)-len(w.axes))...)
	}
	return w
}

// merged joins loops that are one.
func merged(loops []loop) (all []loop) {
	for _, l := range loops {
		last := len(all) - 1
		switch {
		case l.n == 1:
		case last >= 0 && all[last].stride == l.n*l.stride:
			all[last] = loop{all[last].n * l.n, l.stride}
		default:
			all = append(all, l)
		}
	}
	return all
}

func (v view) shape() []int {
	shape := make([]int, len(v.axes))
	for i, loops := range v.axes {
		shape[i] = extent(loops)
	}
	return shape
}

func extent(loops []loop) int {
	n := 1
	for _, l := range loops {
		n *= l.n
	}
	return n
}

// same reports whether two views have the same elements, along the same axes.
func (v view) same(w view) bool {
	return v.step == w.step && v.from == w.from && slices.EqualFunc(v.axes, w.axes, slices.Equal[[]loop])
}

// reshape returns the view with axes of other extents, as many elements as it has.
func (v view) reshape(to []int) (view, error) {
	loops, axes := merged(slices.Concat(v.axes...)), make([][]loop, len(to))
	for i, need := range to {
		for need > 1 && len(loops) > 0 {
			switch l := loops[0]; {
			case need%l.n == 0:
				axes[i], loops = append(axes[i], l), loops[1:]
				need /= l.n
			case l.n%need == 0:
				axes[i] = append(axes[i], loop{need, l.n / need * l.stride})
				loops = append([]loop{{l.n / need, l.stride}}, loops[1:]...)
				need = 1
			default:
				return view{}, fmt.Errorf("%v is not cut into %v", v.shape(), to)
			}
		}
		if need != 1 {
			return view{}, fmt.Errorf("%v has no shape of %v", v.shape(), to)
		}
	}
	v.axes = axes
	return v, nil
}

// slice returns n elements of an axis from one on.
func (v view) slice(axis, from, n int) (view, error) {
	loops := v.axes[axis]
	switch {
	case from < 0 || n < 1 || from+n > extent(loops):
		return view{}, fmt.Errorf("%d to %d of %d is not there", from, from+n, extent(loops))
	case n == extent(loops):
		return v, nil
	case len(loops) != 1:
		return view{}, fmt.Errorf("a part of an axis of several is not supported")
	}
	v.from += from * loops[0].stride
	v.axes = slices.Clone(v.axes)
	v.axes[axis] = merged([]loop{{n, loops[0].stride}})
	return v, nil
}

// hasRows reports whether the view is made of whole rows, the last axis of its step, in any order.
func (v view) hasRows() bool {
	width, rows := last(v.step.desc.Shape), len(v.axes)-1
	return rows >= 0 && slices.Equal(v.axes[rows], merged([]loop{{width, 1}})) && v.from%width == 0 &&
		!slices.ContainsFunc(slices.Concat(v.axes[:rows]...), func(l loop) bool { return l.stride%width != 0 || l.stride == 0 })
}

// ordered reports whether it has all rows of its step, in any order: then it also says what its elements are of a step whose rows have
// width channels.
func (v view) ordered(width int) (view, bool) {
	if !v.hasRows() {
		return view{}, false
	}
	channels, n := last(v.step.desc.Shape), 1
	w := view{axes: make([][]loop, len(v.axes))}
	for i, loops := range v.axes[:len(v.axes)-1] {
		for _, l := range loops {
			w.axes[i] = append(w.axes[i], loop{l.n, l.stride / channels * width})
		}
		n *= extent(loops)
	}
	w.axes[len(w.axes)-1] = merged([]loop{{width, 1}})
	return w, v.from == 0 && int64(n)*int64(channels) == v.step.desc.Elements()
}
