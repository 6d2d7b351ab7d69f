package importer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"plimsoll/kernels"
)

func concat(c *call) (*value, error) {
	axis := c.int("axis", 0)
	if all, are := c.constantInputs(len(c.In)); are && len(all) > 0 && !slices.ContainsFunc(all, func(v constant) bool { return v.numbers == nil }) {
		return known(joined(listed(all), axis))
	}
	if x := withElements(c); x != nil {
		return x, nil
	}
	if v := joinedVectors(c); v != nil {
		return v, nil
	}
	if v := half(c, axis); v != nil {
		return v, nil
	}
	if v, err := turnedPart(c, axis); v != nil || err != nil {
		return v, err
	}
	if first := c.at(0); first != nil && first.repeated != nil {
		return prepended(c, axis)
	}
	var in []*value
	for i := range c.In {
		x, err := c.tensor(i)
		if err == nil && len(x.step.desc.Shape) != len(x.shape) {
			x, err = c.arranged(c.Node, viewOfValue(x))
		}
		if err != nil {
			return nil, err
		}
		in = append(in, x)
	}
	axes := len(in[0].shape)
	if axis = positive(axis, axes); axis < 1 || axis >= axes {
		return nil, fmt.Errorf("attribute axis is %d of %v, and only axes of a sample are supported", axis, in[0].shape)
	}
	switch {
	case axes == 4 && axis > 1: // N,H,W,C here
		axis--
	case axis == 1 && axes != 3, axis == axes-1:
		return c.join(in)
	}
	return c.push(c.Node, kernels.Concat{Axis: axis}, asImage, nil, in...)
}

// withElements returns the only input that has elements; nil: there are several.
func withElements(c *call) (only *value) {
	for i := range c.In {
		x := c.at(i)
		if x != nil && x.shape == nil && x.numbers != nil && len(x.numbers) == 0 {
			continue
		}
		if x == nil || x.shape == nil || extents(x.shape) > 0 {
			if only != nil {
				return nil
			}
			if only = x; x == nil {
				return nil
			}
		}
	}
	if only == nil || len(c.In) == 1 {
		return nil
	}
	return only
}

// prepended puts parameters ahead of a sequence, the last input: initializers 1,R,C that are repeated for each sample.
func prepended(c *call, axis int) (*value, error) {
	last := len(c.In) - 1
	x, err := c.tensor(last, 3)
	if err != nil {
		return nil, err
	}
	if axis != 1 && axis != -2 {
		return nil, fmt.Errorf("attribute axis is %d, and only 1, positions, is supported with initializers", axis)
	}
	for i := last - 1; i >= 0; i-- {
		p := c.at(i)
		if p == nil || p.repeated == nil || len(p.tensor.Dims) != 3 || p.tensor.Dims[0] != 1 || p.repeated[0] != x.shape[0] || p.repeated[1] != int(p.tensor.Dims[1]) {
			return nil, fmt.Errorf("input %d is no initializer 1,R,C that is repeated for each sample, which alone is supported ahead of a sequence", i)
		}
		from := source{name: cmp.Or(p.name, p.from.In[0]), tensor: p.tensor, axes: 2}
		if x, err = c.push(c.Node, kernels.Prepend{Rows: p.repeated[1]}, asImage, []source{from}, x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// join is Concat. If it begins with all parts of an earlier join, as each layer of a DenseNet does, it begins with that join. So
// parts are joined once, and no other layer keeps them.
func (c *call) join(in []*value) (*value, error) {
	if len(in) == 1 {
		return in[0], nil
	}
	var all []*step
	for _, x := range in {
		all = append(all, x.step)
	}
	if was := c.joins[all[0]]; was != nil && len(was.joined) < len(all) && slices.Equal(was.joined, all[:len(was.joined)]) {
		in = append([]*value{{step: was, shape: asImage(was.desc)}}, in[len(was.joined):]...)
	}
	v, err := c.push(c.Node, kernels.Concat{}, asImage, nil, in...)
	if err == nil {
		v.step.joined, c.joins[all[0]] = all, v.step
	}
	return v, err
}

func flatten(c *call) (*value, error) {
	c.only("axis", 1)
	x := c.at(0)
	if x == nil || x.shape == nil || x.scores != nil {
		return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	if x.step != nil && len(x.step.desc.Shape) != 3 {
		return c.flat(x)
	}
	return c.reordered([]int{x.shape[0], extents(x.shape[1:])})
}

// flat returns an image as a matrix, channel by channel, as PyTorch flattens it.
func (c *call) flat(x *value) (*value, error) {
	switch d := x.step.desc.Shape; {
	case len(d) == 4:
		return c.push(c.Node, kernels.AdaptiveAvgPool{OutH: d[1], OutW: d[2]}, asImage, nil, x)
	case len(d) == 2:
		return &value{step: x.step, shape: slices.Clone(d)}, nil
	}
	return nil, fmt.Errorf("input 0 is %v, which is not flattened", x.shape)
}

func reshape(c *call) (*value, error) {
	allowed := c.int("allowzero", 0) != 0
	x := c.at(0)
	switch {
	case x != nil && x.tensor != nil && x.tensor.DType == Float32 && x.flipped == "" && x.repeated == nil:
		return reshapedInitializer(c, x)
	case x != nil && x.numbers != nil:
		return c.reshapedConstant(x)
	case x == nil || x.shape == nil:
		return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	if allowed && slices.Contains(to, 0) {
		return nil, fmt.Errorf("to %v with allowzero, which has no elements", to)
	}
	want, err := reshaped(x.shape, to)
	if x.view == nil || x.view.batchFirst() {
		if batched, failure := reshaped(x.shape, c.batched(to)); failure == nil {
			want, err = batched, nil
		}
	}
	switch {
	case err != nil:
		return nil, err
	case slices.Equal(want, x.shape):
		return x, nil
	case x.scores != nil:
		return reshapedScores(c, x, want)
	case x.turned != nil:
		return reshapedPairs(c, x, want)
	case x.step != nil && len(x.step.desc.Shape) == 2 && len(want) == 4 && want[1] == x.step.desc.Shape[1] && want[2]*want[3] == 1:
		return &value{step: x.step, shape: want}, nil
	case x.step != nil && len(x.step.desc.Shape) != 3 && len(want) == 2 && want[0] == x.shape[0]:
		return c.flat(x)
	case len(want) > MostAxes:
		return nil, fmt.Errorf("from %v to %v, which has more than %d axes", x.shape, want, MostAxes)
	}
	return c.reordered(want)
}

// reshapedConstant is a constant with other axes.
func (c *call) reshapedConstant(x *value) (*value, error) {
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	dims, err := reshaped(x.dims, to)
	if err != nil || len(dims) > MostAxes {
		return nil, fmt.Errorf("a constant of %v to %v: %w", x.dims, to, errors.Join(err))
	}
	return &value{constant: constant{numbers: x.numbers, dims: dims}}, nil
}

// reshapedInitializer is a parameter with axes of 1 more, or less.
func reshapedInitializer(c *call, x *value) (*value, error) {
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	have := make([]int, len(x.tensor.Dims))
	for i, d := range x.tensor.Dims {
		have[i] = int(d)
	}
	dims, err := reshaped(have, to)
	if err != nil {
		return nil, err
	}
	one := func(n int) bool { return n == 1 }
	if !slices.Equal(slices.DeleteFunc(slices.Clone(have), one), slices.DeleteFunc(slices.Clone(dims), one)) {
		return nil, fmt.Errorf("of an initializer of %v to %v, and only axes of 1 may come and go", have, dims)
	}
	t := *x.tensor
	if t.Dims = nil; t.Stored == nil {
		t.Stored = x.tensor.Dims
	}
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
	}
	return &value{tensor: &t, name: cmp.Or(x.name, c.In[0]), constant: constant{numbers: x.numbers, dims: dims}}, nil
}

// reordered is Reshape. Where the axes of a view are not cut into others, it is made a tensor first.
func (c *call) reordered(to []int) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	cut, err := v.reshape(to)
	if err != nil {
		x, rows, failure := c.newRows(v)
		if failure != nil {
			return nil, err
		}
		if y := rows(x); y.view != nil {
			v = *y.view
		} else {
			v = viewOfValue(y)
		}
		if cut, err = v.reshape(to); err != nil {
			return nil, err
		}
	}
	return c.seen(cut), nil
}

// transpose is of an initializer that is a matrix, or of a sequence.
func transpose(c *call) (*value, error) {
	x := c.at(0)
	if x != nil && x.tensor != nil {
		return c.flipped(x)
	}
	if x != nil && x.numbers != nil {
		return known(permuted(&x.constant, c.listed("perm", backwards(len(x.dims)))))
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

// flipped is an initializer that is a matrix, transposed.
func (c *call) flipped(x *value) (*value, error) {
	perm := c.listed("perm", []int{1, 0})
	if len(x.tensor.Dims) != 2 || x.flipped != "" || !slices.Equal(perm, []int{1, 0}) {
		return nil, fmt.Errorf("of an initializer only that of a matrix is supported, not %v of %v", perm, x.tensor.Dims)
	}
	return &value{tensor: x.tensor, flipped: cmp.Or(x.name, c.In[0])}, nil
}

// split cuts an axis of a sequence; the outputs are its parts.
func split(c *call) (*value, error) {
	if x := c.at(0); x != nil && x.numbers != nil && x.shape == nil {
		return splitConstant(c, &x.constant)
	}
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
		part, err := cut(c, v, axis, from, size)
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

// cut returns n elements of an axis from one on. An axis that counts through several loops is made one of a tensor first.
func cut(c *call, v view, axis, from, n int) (view, error) {
	part, err := v.slice(axis, from, n)
	if err == nil || len(v.axes[axis]) < 2 {
		return part, err
	}
	x, failure := c.arranged(c.Node, v)
	if failure != nil {
		return view{}, failure
	}
	return viewOfValue(x).slice(axis, from, n)
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
	if v, err = cut(c, v, axis, positive(at, v.shape()[axis]), 1); err != nil {
		return nil, err
	}
	v.axes = slices.Delete(slices.Clone(v.axes), axis, axis+1)
	return c.seen(v), nil
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
		return known(picked(&x.constant, &at.constant, axis))
	case x.shape != nil && len(at.dims) == 1 && x.scores == nil:
		return gatherRange(c, axis, at.numbers)
	case x.shape != nil && len(at.numbers) == 1 && len(at.dims) == 0:
		return c.index(axis, int(max(min(at.numbers[0], MostBytes), -MostBytes)))
	}
	return nil, fmt.Errorf("only of constants, of tables by tokens, and of one index of a sequence is supported")
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
	if x == nil || len(bounds[0]) != 1 || len(bounds[1]) != 1 || len(bounds[2]) > 1 || len(bounds[3]) > 1 || len(bounds[3]) == 1 && bounds[3][0] < 1 {
		return nil, fmt.Errorf("starts %v, ends %v, axes %v and steps %v: only one range with a positive step is supported", bounds[0], bounds[1], bounds[2], bounds[3])
	}
	axis, step := 0, 1
	if len(bounds[2]) == 1 {
		axis = bounds[2][0]
	}
	if len(bounds[3]) == 1 {
		step = bounds[3][0]
	}
	if step != 1 && (x.mask != nil || x.numbers != nil) {
		return nil, fmt.Errorf("a step of %d in a constant is not supported", step)
	}
	clip := func(n int) (int, int) {
		from, to := min(max(positive(bounds[0][0], n), 0), n), min(max(positive(bounds[1][0], n), 0), n)
		return from, max(to, from)
	}
	switch {
	case x.mask != nil:
		m, err := x.mask.part(positive(axis, len(x.mask.dims)), clip)
		return known(constant{mask: m}, err)
	case x.numbers != nil && positive(axis, len(x.dims)) >= 0 && positive(axis, len(x.dims)) < len(x.dims):
		axis = positive(axis, len(x.dims))
		from, to := clip(x.dims[axis])
		return known(x.part(axis, from, to-from))
	}
	return slicedView(c, axis, step, clip)
}

// slicedView is a range of an axis of a sequence.
func slicedView(c *call, axis, step int, clip func(n int) (from, to int)) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if axis = positive(axis, len(v.axes)); axis < 0 || axis >= len(v.axes) {
		return nil, fmt.Errorf("axis %d of %d", axis, len(v.axes))
	}
	from, to := clip(v.shape()[axis])
	if from == to {
		shape := v.shape()
		shape[axis] = 0
		return &value{shape: shape, from: c.Node}, nil
	}
	if v, err = cut(c, v, axis, from, to-from); err != nil {
		return nil, err
	}
	if step > 1 {
		if v, err = stepped(c, v, axis, step); err != nil {
			return nil, err
		}
	}
	return c.seen(v), nil
}

// stepped returns one element of step of an axis.
func stepped(c *call, v view, axis, step int) (view, error) {
	if len(v.axes[axis]) > 1 {
		x, err := c.arranged(c.Node, v)
		if err != nil {
			return view{}, err
		}
		v = viewOfValue(x)
	}
	v.axes = slices.Clone(v.axes)
	for i, l := range v.axes[axis] {
		v.axes[axis] = slices.Clone(v.axes[axis])
		v.axes[axis][i] = loop{(l.n + step - 1) / step, l.stride * step}
	}
	v.axes[axis] = merged(v.axes[axis])
	return v, nil
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
		return &value{constant: constant{numbers: x.numbers, dims: slices.Insert(slices.Clone(x.dims), axes[0], 1)}}, nil
	case x != nil && x.mask != nil:
		m := *x.mask
		m.dims = append([]int{1}, m.dims...)
		if len(m.dims) > MostAxes {
			return nil, fmt.Errorf("a mask of %v", m.dims)
		}
		return &value{constant: constant{mask: &m}}, nil
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
	return &value{constant: constant{numbers: x.numbers, dims: dims}}, nil
}

// splitConstant cuts an axis of a constant; the outputs are its parts.
func splitConstant(c *call, x *constant) (*value, error) {
	sizes, err := c.constants(1, "split")
	axis := positive(c.int("axis", 0), len(x.dims))
	if err != nil || axis < 0 || axis >= len(x.dims) || len(sizes) != len(c.Out) {
		return nil, fmt.Errorf("axis %d of a constant of %v into %v: want %d parts: %w", axis, x.dims, sizes, len(c.Out), errors.Join(err))
	}
	var all []*value
	from := 0
	for _, size := range sizes {
		if size < 0 || from+size > x.dims[axis] {
			return nil, fmt.Errorf("axis %d of a constant of %v into %v", axis, x.dims, sizes)
		}
		part, err := x.part(axis, from, size)
		if err != nil {
			return nil, err
		}
		from += size
		all = append(all, &value{constant: part})
	}
	all[0].rest = all[1:]
	return all[0], nil
}

// gatherRange takes elements of an axis of a tensor that are equally far apart, by a list of their numbers.
func gatherRange(c *call, axis int, numbers []float64) (*value, error) {
	at, err := whole(numbers)
	if err != nil {
		return nil, err
	}
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if axis = positive(axis, len(v.axes)); axis < 0 || axis >= len(v.axes) {
		return nil, fmt.Errorf("attribute axis is %d of %d axes", axis, len(v.axes))
	}
	n, step := v.shape()[axis], 1
	for i := range at {
		at[i] = positive(at[i], n)
	}
	if len(at) > 1 {
		step = at[1] - at[0]
	}
	for i, k := range at {
		if k != at[0]+i*step || step < 1 || k < 0 || k >= n {
			return nil, fmt.Errorf("elements %v of an axis of %d, and only those that are equally far apart, in their order, are supported", at[:min(len(at), 8)], n)
		}
	}
	if v, err = cut(c, v, axis, at[0], at[len(at)-1]-at[0]+1); err == nil && step > 1 {
		v, err = stepped(c, v, axis, step)
	}
	if err != nil {
		return nil, err
	}
	return c.seen(v), nil
}
