package importer

import (
	"fmt"
	"slices"
)

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

// sequence returns input 0 as a view: of a sequence, which is N,T,C or tokens N,T.
func (c *call) sequence() (view, error) {
	v := c.at(0)
	if v != nil && v.view != nil {
		return *v.view, nil
	}
	v, err := c.tensor(0)
	if err != nil {
		return view{}, err
	}
	if len(v.step.desc.Shape) == 4 || !slices.Equal(v.shape, v.step.desc.Shape) {
		return view{}, fmt.Errorf("input 0 is %v, and only sequences, N,T,C, are supported", v.shape)
	}
	return viewOf(v.step), nil
}

// seen is the value of a view that a node makes: where it is all of a step, the step's.
func (c *call) seen(v view) *value {
	if v.same(viewOf(v.step)) {
		return &value{step: v.step, shape: slices.Clone(v.step.desc.Shape)}
	}
	return &value{view: &v, shape: v.shape(), from: c.Node}
}

// reordered is Reshape of what is no image.
func (c *call) reordered(to []int) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if v, err = v.reshape(to); err != nil {
		return nil, err
	}
	return c.seen(v), nil
}

// transpose is of an initializer that is a matrix, or of a sequence.
func transpose(c *call) (*value, error) {
	x := c.at(0)
	if x != nil && x.tensor != nil {
		return c.flipped(x)
	}
	if x != nil && x.numbers != nil {
		return permuted(x, c.listed("perm", backwards(len(x.dims))))
	}
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	perm := c.listed("perm", backwards(len(v.axes)))
	axes := make([][]loop, len(perm))
	for i, p := range perm {
		if len(perm) != len(v.axes) || p < 0 || p >= len(perm) || slices.Contains(perm[:i], p) {
			return nil, fmt.Errorf("attribute perm is %v, no order of %d axes", perm, len(v.axes))
		}
		axes[i] = v.axes[p]
	}
	v.axes = axes
	return c.seen(v), nil
}

// backwards is n axes in reverse.
func backwards(n int) []int {
	perm := make([]int, n)
	for i := range perm {
		perm[i] = n - 1 - i
	}
	return perm
}

// flipped is an initializer that is a matrix, transposed.
func (c *call) flipped(x *value) (*value, error) {
	perm := c.listed("perm", []int{1, 0})
	if len(x.tensor.Dims) != 2 || x.flipped != "" || !slices.Equal(perm, []int{1, 0}) {
		return nil, fmt.Errorf("of an initializer only that of a matrix is supported, not %v of %v", perm, x.tensor.Dims)
	}
	return &value{tensor: x.tensor, flipped: c.In[0]}, nil
}

// split cuts an axis of a sequence; the outputs are its parts.
func split(c *call) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	sizes, err := c.constants(1, "split")
	if err != nil {
		return nil, err
	}
	axis := positive(c.int("axis", 0), len(v.axes))
	if axis < 0 || axis >= len(v.axes) {
		return nil, fmt.Errorf("attribute axis is %d of %d axes", axis, len(v.axes))
	}
	n := v.shape()[axis]
	if len(sizes) == 0 && n%len(c.Out) == 0 {
		sizes = slices.Repeat([]int{n / len(c.Out)}, len(c.Out))
	}
	if len(sizes) != len(c.Out) {
		return nil, fmt.Errorf("into %v of %d: want %d parts", sizes, n, len(c.Out))
	}
	var all []*value
	from := 0
	for _, size := range sizes {
		part, err := v.slice(axis, from, size)
		if err != nil {
			return nil, err
		}
		from += size
		all = append(all, c.seen(part))
	}
	first := *all[0]
	first.rest = all[1:]
	return &first, nil
}

// index is Gather of one index.
func (c *call) index(axis, at int) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if axis = positive(axis, len(v.axes)); axis < 0 || axis >= len(v.axes) {
		return nil, fmt.Errorf("attribute axis is %d of %d axes", axis, len(v.axes))
	}
	if v, err = v.slice(axis, positive(at, v.shape()[axis]), 1); err != nil {
		return nil, err
	}
	v.axes = slices.Delete(slices.Clone(v.axes), axis, axis+1)
	return c.seen(v), nil
}

// axes are those that a node's input 1, or its attribute, names of so many.
func (c *call) axes(of int) ([]int, error) {
	axes, err := c.constants(1, "axes")
	for i := range axes {
		if axes[i] = positive(axes[i], of); axes[i] < 0 || axes[i] >= of {
			return nil, fmt.Errorf("axes %v of %d", axes, of)
		}
	}
	slices.Sort(axes)
	return axes, err
}

// rows returns the first input as a tensor for an op that works on rows, the last axis, and what the op's output is seen as.
func (c *call) rows(axes ...int) (x *value, seen func(y *value) *value, err error) {
	v := c.at(0)
	if v == nil || v.view == nil {
		x, err = c.tensor(0, axes...)
		return x, func(y *value) *value { return y }, err
	}
	base := v.view.step
	if _, all := v.view.ordered(1); !all {
		return nil, nil, c.reorderedBy(0, v)
	}
	return &value{step: base, shape: slices.Clone(base.desc.Shape)}, func(y *value) *value {
		w, _ := v.view.ordered(last(y.step.desc.Shape))
		w.step = y.step
		return c.seen(w)
	}, nil
}

func (c *call) reorderedBy(i int, v *value) error {
	return fmt.Errorf("input %d is part of a tensor, or one whose elements %s has reordered, which only attention reads", i, v.from.Label)
}
