package importer

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// What exports compute shapes, scales and masks with: lists of numbers, and masks.

// constantInputs returns the inputs when they are n constants.
func (c *call) constantInputs(n int) (all []*value, constant bool) {
	for i := range c.In {
		v := c.at(i)
		if v == nil || v.numbers == nil && v.mask == nil {
			return nil, false
		}
		all = append(all, v)
	}
	return all, len(all) == n
}

// computed is a function of constants, element by element; extents of 1 are repeated, as PyTorch does.
func (c *call) computed(f func(v []float64) float64) (*value, error) {
	all, _ := c.constantInputs(len(c.In))
	args := make([]float64, len(all))
	if m := oneMask(all); m != nil {
		out := &value{mask: m}
		return out, c.halves(out, all, func(high bool) float64 {
			for k, v := range all {
				args[k] = v.half(high)
			}
			return f(args)
		})
	}
	var dims []int
	for i, v := range all {
		var err error
		if all[i], err = v.dense(); err != nil {
			return nil, err
		}
		if dims, err = broadcast(dims, all[i].dims); err != nil {
			return nil, err
		}
	}
	return filled(dims, func(indices []int) float64 {
		for k, v := range all {
			args[k] = v.numbers[v.at(indices)]
		}
		return f(args)
	})
}

// oneMask returns a mask of constants that are masks of its size and numbers; nil: there is none, or there are others.
func oneMask(all []*value) (m *mask) {
	for _, v := range all {
		switch {
		case v.mask == nil && len(v.numbers) != 1, v.mask != nil && m != nil && (v.mask.n != m.n || !slices.Equal(v.mask.dims, m.dims)):
			return nil
		case v.mask != nil:
			m = v.mask
		}
	}
	return m
}

// halves computes a mask from masks of one size and numbers.
func (c *call) halves(out *value, all []*value, f func(high bool) float64) error {
	for _, v := range all {
		if v.mask == nil && len(v.dims) > len(out.mask.dims) {
			return fmt.Errorf("a mask of %v and a constant of %v", out.mask.dims, v.dims)
		}
	}
	m := *out.mask
	m.low, m.high = f(false), f(true)
	out.mask = &m
	return nil
}

// half is what a mask has above the diagonal, or below; a number everywhere.
func (v *value) half(high bool) float64 {
	switch {
	case v.mask == nil:
		return v.numbers[0]
	case high:
		return v.mask.high
	}
	return v.mask.low
}

// truth is a comparison as a function.
func truth(f func(x, y float64) bool) func(c *call) (*value, error) {
	return constants2(func(x, y float64) float64 { return truthOf(f(x, y)) })
}

// truthOf is 1 of what is true, 0 of what is not.
func truthOf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// constants2 is a function of constants alone.
func constants2(f func(x, y float64) float64) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if _, constant := c.constantInputs(2); !constant {
			return nil, fmt.Errorf("only of constants is supported")
		}
		return c.computed(func(v []float64) float64 { return f(v[0], v[1]) })
	}
}

// mod is the rest of a division of integers.
func mod(c *call) (*value, error) {
	c.only("fmod", 0)
	return constants2(func(x, y float64) float64 { return x - y*math.Floor(x/y) })(c)
}

// not is 1 of 0, and 0 of others.
func not(c *call) (*value, error) {
	if _, constant := c.constantInputs(1); !constant {
		return nil, fmt.Errorf("only of constants is supported")
	}
	return c.computed(func(v []float64) float64 { return truthOf(v[0] == 0) })
}

// shapeOf is the list of the extents.
func shapeOf(c *call) (*value, error) {
	x := c.at(0)
	if x == nil || x.shape == nil {
		return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	c.only("start", 0)
	v := &value{dims: []int{len(x.shape)}}
	for _, d := range x.shape {
		v.numbers = append(v.numbers, float64(d))
	}
	return v, nil
}

// gather takes numbers out of a list, one index out of a sequence's axis, or rows out of a table: an embedding.
func gather(c *call) (*value, error) {
	axis := c.int("axis", 0)
	x, at := c.at(0), c.at(1)
	switch {
	case x == nil || at == nil:
	case x.tensor != nil && len(x.tensor.Dims) == 2 && x.tensor.DType == Float32:
		return c.embedding(x, at, axis)
	case x.numbers != nil && at.numbers != nil:
		return picked(x, at, axis)
	case x.shape != nil && len(at.numbers) == 1 && len(at.dims) == 0:
		return c.index(axis, int(max(min(at.numbers[0], MostBytes), -MostBytes)))
	}
	return nil, fmt.Errorf("only of constants, of tables by tokens, and of one index of a sequence is supported")
}

// picked takes indices out of an axis of a constant.
func picked(x, at *value, axis int) (*value, error) {
	if axis = positive(axis, len(x.dims)); axis < 0 || axis >= len(x.dims) {
		return nil, fmt.Errorf("axis %d of %v", axis, x.dims)
	}
	n, k := x.dims[axis], len(at.dims)
	places, err := indicesOf(at, n)
	if err != nil {
		return nil, err
	}
	from := make([]int, len(x.dims))
	return filled(slices.Concat(x.dims[:axis], at.dims, x.dims[axis+1:]), func(indices []int) float64 {
		copy(from, indices[:axis])
		from[axis] = places[at.at(indices[axis:axis+k])]
		copy(from[axis+1:], indices[axis+k:])
		return x.numbers[x.at(from)]
	})
}

// indicesOf returns a constant as indices of an axis of n, from the front.
func indicesOf(at *value, n int) ([]int, error) {
	all := make([]int, len(at.numbers))
	for i, v := range at.numbers {
		if k := positive(int(max(min(v, math.MaxInt32), -math.MaxInt32)), n); k >= 0 && k < n {
			all[i] = k
			continue
		}
		return nil, fmt.Errorf("there is no element %v of an axis of %d", v, n)
	}
	return all, nil
}

// sliced takes a range out of a list, a mask or an axis of a sequence.
func sliced(c *call) (*value, error) {
	x := c.at(0)
	var bounds [4][]int // starts, ends, axes, steps
	for i := range bounds {
		var err error
		if bounds[i], err = c.constants(i+1, ""); err != nil {
			return nil, err
		}
	}
	if x == nil || len(bounds[0]) != 1 || len(bounds[1]) != 1 || len(bounds[2]) > 1 || len(bounds[3]) > 1 || len(bounds[3]) == 1 && bounds[3][0] != 1 {
		return nil, fmt.Errorf("starts %v, ends %v, axes %v and steps %v: only one range with a step of 1 is supported", bounds[0], bounds[1], bounds[2], bounds[3])
	}
	axis := 0
	if len(bounds[2]) == 1 {
		axis = bounds[2][0]
	}
	clip := func(n int) (int, int) {
		from, to := min(max(positive(bounds[0][0], n), 0), n), min(max(positive(bounds[1][0], n), 0), n)
		return from, max(to, from)
	}
	switch {
	case x.mask != nil:
		return x.mask.part(positive(axis, len(x.mask.dims)), clip)
	case x.numbers != nil && positive(axis, len(x.dims)) >= 0 && positive(axis, len(x.dims)) < len(x.dims):
		axis = positive(axis, len(x.dims))
		from, to := clip(x.dims[axis])
		dims := slices.Clone(x.dims)
		dims[axis] = to - from
		return filled(dims, func(indices []int) float64 {
			at := slices.Clone(indices)
			at[axis] += from
			return x.numbers[x.at(at)]
		})
	}
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if axis = positive(axis, len(v.axes)); axis < 0 || axis >= len(v.axes) {
		return nil, fmt.Errorf("axis %d of %d", axis, len(v.axes))
	}
	from, to := clip(v.shape()[axis])
	if v, err = v.slice(axis, from, to-from); err != nil {
		return nil, err
	}
	return c.seen(v), nil
}

// part is a range of a mask's axis: rows from the first on, columns then as many. With fewer rows than columns it is no mask yet, which
// dims tell.
func (m *mask) part(axis int, clip func(n int) (from, to int)) (*value, error) {
	if axis < 0 || axis >= len(m.dims) {
		return nil, fmt.Errorf("axis %d of a mask of %v", axis, m.dims)
	}
	from, to := clip(m.dims[axis])
	if from != 0 || to < 1 {
		return nil, fmt.Errorf("%d to %d of axis %d of a mask of %v is not supported: want it from 0 on", from, to, axis, m.dims)
	}
	cut := *m
	cut.dims = slices.Clone(m.dims)
	cut.dims[axis] = to
	if axis >= len(m.dims)-2 {
		cut.n = min(cut.n, to)
	}
	return &value{mask: &cut}, nil
}

// unsqueeze is of a constant, or adds axes of 1 to a sequence.
func unsqueeze(c *call) (*value, error) {
	x := c.at(0)
	switch {
	case x != nil && x.numbers != nil:
		axes, err := c.axes(len(x.dims) + 1)
		if err != nil || len(axes) != 1 || len(x.dims) >= MostAxes {
			return nil, fmt.Errorf("axes %v of constants of %v, and only one is supported: %w", axes, x.dims, errors.Join(err))
		}
		return &value{numbers: x.numbers, dims: slices.Insert(slices.Clone(x.dims), axes[0], 1)}, nil
	case x != nil && x.mask != nil:
		m := *x.mask
		m.dims = append([]int{1}, m.dims...)
		if len(m.dims) > MostAxes {
			return nil, fmt.Errorf("a mask of %v", m.dims)
		}
		return &value{mask: &m}, nil
	}
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	list, err := c.constants(1, "axes")
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || len(v.axes) >= MostAxes {
		return nil, fmt.Errorf("axes %v, and only one is supported", list)
	}
	axis := positive(list[0], len(v.axes)+1)
	if axis < 0 || axis > len(v.axes) {
		return nil, fmt.Errorf("axes %v of %d", list, len(v.axes))
	}
	v.axes = slices.Insert(slices.Clone(v.axes), axis, []loop{})
	return c.seen(v), nil
}

// squeeze takes the axes of 1 away, of constants, of N,C,1,1 or of a sequence.
func squeeze(c *call) (*value, error) {
	x := c.at(0)
	if x != nil && x.numbers != nil {
		return c.squeezed(x)
	}
	if x == nil || x.shape == nil {
		return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	axes, err := c.axes(len(x.shape))
	if err != nil {
		return nil, err
	}
	if x.step != nil && len(x.shape) == 4 && slices.Equal(axes, []int{2, 3}) && x.shape[2]*x.shape[3] == 1 {
		return c.flat(x)
	}
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	for _, axis := range slices.Backward(axes) {
		if extent(v.axes[axis]) != 1 {
			return nil, fmt.Errorf("axes %v of %v are not 1", axes, x.shape)
		}
		v.axes = slices.Delete(slices.Clone(v.axes), axis, axis+1)
	}
	return c.seen(v), nil
}

// squeezed takes axes of 1 away from a constant.
func (c *call) squeezed(x *value) (*value, error) {
	axes, err := c.axes(len(x.dims))
	if err != nil {
		return nil, err
	}
	dims := slices.Clone(x.dims)
	for _, axis := range slices.Backward(axes) {
		if dims[axis] != 1 {
			return nil, fmt.Errorf("axes %v of a constant of %v are not 1", axes, x.dims)
		}
		dims = slices.Delete(dims, axis, axis+1)
	}
	return &value{numbers: x.numbers, dims: dims}, nil
}

// cast leaves constants what they are, and tensors of float32.
func cast(c *call) (*value, error) {
	to := DType(c.int("to", 0))
	x := c.at(0)
	switch {
	case x == nil:
	case (x.mask != nil || x.numbers != nil) && to == Bool:
		return c.computed(func(v []float64) float64 { return truthOf(v[0] != 0) })
	case x.numbers != nil && (to == Int32 || to == Int64):
		return c.computed(func(v []float64) float64 { return math.Trunc(v[0]) })
	case x.numbers != nil || x.mask != nil:
		return x, nil
	case (x.shape != nil && !c.tokens(x) || x.table != nil) && to == Float32:
		return x, nil
	}
	return nil, fmt.Errorf("to %v is not supported of what is no constant", to)
}

// expand repeats a number, which makes a list or a mask.
func expand(c *call) (*value, error) {
	x := c.at(0)
	shape, err := c.constants(1, "")
	if err == nil && x != nil {
		keep(shape, x)
	}
	switch {
	case err != nil:
		return nil, err
	case isNumber(x) && len(x.dims) <= len(shape):
		return repeated(x.numbers[0], shape)
	case x != nil && x.mask != nil && x.mask.expands(shape):
		m := *x.mask
		m.dims = shape
		return &value{mask: &m}, nil
	case x != nil && x.numbers != nil:
		dims, err := broadcast(x.dims, shape)
		if err != nil {
			return nil, err
		}
		return filled(dims, func(indices []int) float64 { return x.numbers[x.at(indices)] })
	}
	return nil, fmt.Errorf("only of constants is supported")
}

// constantOfShape is a number, as often as a shape has elements.
func constantOfShape(c *call) (*value, error) {
	fill := 0.0
	if a := c.attribute("value"); a != nil && a.Tensor != nil {
		v, err := a.Tensor.value()
		if err != nil {
			return nil, err
		}
		if len(v.numbers) != 1 {
			return nil, fmt.Errorf("attribute value is no number")
		}
		fill = v.numbers[0]
	}
	shape, err := c.constants(0, "")
	if err != nil {
		return nil, err
	}
	return repeated(fill, shape)
}

// keep puts the extents of a constant in the place of -1 in a shape that it is to have.
func keep(shape []int, x *value) {
	dims := x.dims
	if x.mask != nil {
		dims = x.mask.dims
	}
	skip := len(shape) - len(dims)
	for i := max(skip, 0); i < len(shape); i++ {
		if shape[i] == -1 {
			shape[i] = dims[i-skip]
		}
	}
}

// expands reports whether a mask is repeated along other axes than its own, which leaves it the mask that it is.
func (m *mask) expands(shape []int) bool {
	own, n := len(m.dims), len(shape)
	return n >= own && n <= MostAxes && slices.Equal(shape[n-2:], m.dims[own-2:])
}

func repeated(x float64, shape []int) (*value, error) {
	n := 1
	for _, d := range shape {
		if d < 1 || d > MostBytes || n*d > MostBytes {
			return nil, fmt.Errorf("a shape of %v is not supported", shape)
		}
		n *= d
	}
	if m := square(shape, x, x); m != nil {
		return &value{mask: m}, nil
	}
	return filled(shape, func([]int) float64 { return x })
}

// ranged is the numbers from one to another.
func ranged(c *call) (*value, error) {
	all, constant := c.constantInputs(3)
	for _, v := range all {
		constant = constant && isNumber(v)
	}
	if !constant {
		return nil, fmt.Errorf("only of constants is supported")
	}
	from, to, by := all[0].numbers[0], all[1].numbers[0], all[2].numbers[0]
	n := math.Ceil((to - from) / by)
	if !(n >= 1 && n <= MostElements) {
		return nil, fmt.Errorf("from %v to %v by %v has not from 1 to %d elements", from, to, by, MostElements)
	}
	v := &value{dims: []int{int(n)}}
	for i := range int(n) {
		v.numbers = append(v.numbers, from+float64(i)*by)
	}
	return v, nil
}
