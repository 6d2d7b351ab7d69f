package importer

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// call reads a node: its attributes and its inputs.
type call struct {
	*importer
	attributes
}

// at returns input i, nil when it is left out.
func (c *call) at(i int) *value {
	if i >= len(c.In) {
		return nil
	}
	return c.values[c.In[i]]
}

// constantInputs returns the inputs when they are n constants.
func (c *call) constantInputs(n int) (all []constant, are bool) {
	for i := range c.In {
		v := c.at(i)
		if v == nil || v.numbers == nil && v.mask == nil {
			return nil, false
		}
		all = append(all, v.constant)
	}
	return all, len(all) == n
}

// computed is a function of inputs that are constants.
func (c *call) computed(f func(v []float64) float64) (*value, error) {
	all, _ := c.constantInputs(len(c.In))
	return known(computed(all, f))
}

// constants returns the numbers of input i, or of the attribute that older versions have in its place; nil when both are left out.
func (c *call) constants(i int, name string) ([]int, error) {
	var numbers []float64
	var a *Attribute
	if name != "" {
		a = c.attribute(name)
	}
	if a != nil {
		for _, v := range a.Ints {
			numbers = append(numbers, float64(v))
		}
	} else if v := c.at(i); v != nil {
		if v.numbers == nil {
			return nil, fmt.Errorf("input %d is no constant", i)
		}
		numbers = v.numbers
	}
	return whole(numbers)
}

// whole returns numbers as integers.
func whole(numbers []float64) ([]int, error) {
	all := make([]int, len(numbers))
	for i, v := range numbers {
		if all[i] = int(max(min(v, MostBytes), -MostBytes)); float64(all[i]) != v && v < MostBytes && v > -MostBytes || v != v {
			return nil, fmt.Errorf("%v is no integer", v)
		}
	}
	return all, nil
}

// axes are the axes, of a number, that a node's input 1 or its attribute names.
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

// param returns input i, an initializer, as the source of a parameter.
func (c *call) param(i int, l layout) (source, error) {
	v := c.at(i)
	switch {
	case v != nil && v.fromOne != nil:
		return source{}, fmt.Errorf("input %d is parameter %q and 1, which only tensors and norms are multiplied by", i, v.fromOne.tensor.Name)
	case v == nil || v.tensor == nil:
		return source{}, fmt.Errorf("input %d is no initializer", i)
	}
	switch {
	case v.flipped == "":
		return source{name: cmp.Or(v.name, c.In[i]), tensor: v.tensor, layout: l}, nil
	case l == asIs:
		return source{name: v.flipped, tensor: v.tensor, layout: transposed}, nil
	case l == transposed:
		return source{name: v.flipped, tensor: v.tensor, layout: asIs}, nil
	}
	return source{}, fmt.Errorf("input %d is transposed, which is not supported", i)
}

// tensor returns input i, what a step makes, with so many axes in ONNX and here: of 4 an image, of 3 a sequence, of 2 a matrix.
func (c *call) tensor(i int, axes ...int) (*value, error) {
	v := c.at(i)
	if v == nil || v.shape == nil {
		return nil, fmt.Errorf("input %d is no tensor that follows from the model's input", i)
	}
	v, err := c.plain(v, i)
	if err != nil {
		return nil, err
	}
	if c.tokens(v) {
		return nil, fmt.Errorf("input %d is the tokens, which only the table of an embedding is read with", i)
	}
	if pooled := len(v.shape) == 4 && len(v.step.desc.Shape) == 2; pooled && slices.Contains(axes, 4) {
		if v, err = c.arranged(c.Node, viewOfValue(v)); err != nil {
			return nil, err
		}
	}
	if len(axes) > 0 && (!slices.Contains(axes, len(v.shape)) || len(v.shape) != len(v.step.desc.Shape)) {
		return nil, fmt.Errorf("input %d is %v (%v here), want one of %v axes", i, v.shape, v.step.desc, axes)
	}
	return v, nil
}

// plain returns input i as a tensor: a function of one becomes its op.
func (c *call) plain(v *value, i int) (*value, error) {
	switch {
	case v.step != nil:
		return v, nil
	case v.made != nil:
		return v.made, nil
	case v.view != nil:
		made, err := c.arranged(v.from, *v.view)
		v.made = made
		return made, err
	case extents(v.shape) == 0:
		return nil, fmt.Errorf("input %d is %v, which has no elements", i, v.shape)
	case v.whole != nil:
		made, err := v.whole()
		if err == nil {
			made, err = c.plain(made, i)
		}
		v.made = made
		return made, err
	case v.centered != nil:
		return nil, fmt.Errorf("input %d is rows less their means, by %s, which only the rest of LayerNorm is read with", i, v.from.Label)
	case v.turned != nil, v.statistic != nil:
		return nil, fmt.Errorf("input %d is a part of a rotary embedding or of RMSNorm, by %s, which only the rest of it is read with", i, v.from.Label)
	case v.scores != nil:
		return nil, fmt.Errorf("input %d is scores of attention, by %s, which only their mask, softmax and values are read with", i, v.from.Label)
	}
	x, err := c.plain(v.curve.of, i)
	if err != nil {
		return nil, err
	}
	if v.made, err = pushCurve(c, v.from, v.curve, x); v.made == nil && err == nil && v.curve.written != nil {
		if v.made, err = v.curve.written(); err != nil {
			err = fmt.Errorf("input %d is a function of a tensor by %s, and it is no activation that is supported: %w", i, v.from.Label, err)
		}
	} else if v.made == nil && err == nil {
		err = fmt.Errorf("input %d is a function of a tensor by %s, and it is no activation that is supported", i, v.from.Label)
	}
	return v.made, err
}

// tokens reports whether a value is the tokens that the model reads.
func (c *call) tokens(v *value) bool { return v.step == c.input && c.text() }

// sequence returns input 0 as a view of a step. Its axes are those that the value has in PyTorch.
func (c *call) sequence() (view, error) {
	v := c.at(0)
	if v != nil && v.view != nil {
		return *v.view, nil
	}
	v, err := c.tensor(0)
	if err != nil {
		return view{}, err
	}
	return viewOfValue(v), nil
}

// seen is the value of a view that a node makes: where it is all of a step, as it is there, the step's.
func (c *call) seen(v view) *value {
	whole := &value{step: v.step, shape: asImage(v.step.desc)}
	if v.same(viewOfValue(whole)) {
		return whole
	}
	return &value{view: &v, shape: v.shape(), from: c.Node}
}

// arranged makes a view a tensor of its own: of four axes, an image, N,H,W,C.
func (c *call) arranged(n *Node, v view) (*value, error) {
	if slices.ContainsFunc(slices.Concat(v.axes...), func(l loop) bool { return l.stride == 0 && l.n > 1 }) {
		var err error
		if v, err = repeatedView(c, n, v); err != nil {
			return nil, err
		}
	}
	shape, axes := v.shape(), v.axes
	if len(shape) == 4 {
		axes = [][]loop{axes[0], axes[2], axes[3], axes[1]}
	}
	var loops []kernels.Loop
	for _, l := range merged(slices.Concat(axes...)) {
		loops = append(loops, kernels.Loop{N: l.n, Stride: l.stride})
	}
	if len(shape) < 1 || len(shape) > kernels.MostAxes || len(loops) > kernels.MostLoops {
		return nil, fmt.Errorf("a tensor of %v, in an order of %d loops, is not supported: want up to %d axes and %d loops", shape, len(loops), kernels.MostAxes, kernels.MostLoops)
	}
	own := make([]int, len(axes))
	for i := range axes {
		own[i] = extent(axes[i])
	}
	return c.push(n, kernels.NewRearrange(own, v.from, loops), asImage, nil, &value{step: v.step, shape: asImage(v.step.desc)})
}

// rows returns the first input as a tensor for an op that works on rows, the last axis, and what the op's output is seen as.
func (c *call) rows(axes ...int) (x *value, seen func(y *value) *value, err error) {
	v := c.at(0)
	if v == nil || v.view == nil && len(v.shape) != 4 {
		x, err = c.tensor(0, axes...)
		return x, func(y *value) *value { return y }, err
	}
	return c.rowsOf(v)
}

// rowsOf is rows of a tensor, or a view.
func (c *call) rowsOf(v *value) (x *value, seen func(y *value) *value, err error) {
	if v.view == nil {
		if v, err = c.plain(v, 0); err != nil {
			return nil, nil, err
		}
		if len(v.shape) == 4 {
			return c.newRows(viewOfValue(v))
		}
		return v, func(y *value) *value { return y }, nil
	}
	base := v.view.step
	if _, all := v.view.ordered(1); !all {
		return c.newRows(*v.view)
	}
	return &value{step: base, shape: slices.Clone(base.desc.Shape)}, func(y *value) *value {
		w, _ := v.view.ordered(last(y.step.desc.Shape))
		w.step = y.step
		return c.seen(w)
	}, nil
}

// elements returns the first input as a tensor for an op of each element, in whatever order, and what the op's output is seen as.
func (c *call) elements() (x *value, seen func(y *value) *value, err error) {
	v := c.at(0)
	if v == nil || v.view == nil || v.view.from != 0 || int64(extents(v.view.shape())) != v.view.step.desc.Elements() {
		x, err = c.tensor(0)
		return x, func(y *value) *value { return y }, err
	}
	return &value{step: v.view.step, shape: asImage(v.view.step.desc)}, func(y *value) *value {
		w := *v.view
		w.step = y.step
		return c.seen(w)
	}, nil
}

// newRows makes rows of a view whose last axis is none of its step's: a tensor of its own, N,rows,columns.
func (c *call) newRows(v view) (x *value, seen func(y *value) *value, err error) {
	shape := v.shape()
	k := len(shape) - 1
	if k < 1 {
		return nil, nil, fmt.Errorf("input 0 is %v, which has no rows", shape)
	}
	flat := v
	if k > 1 {
		flat.axes = [][]loop{v.axes[0], slices.Concat(v.axes[1:k]...), v.axes[k]}
	}
	if x, err = c.arranged(c.Node, flat); err != nil {
		return nil, nil, err
	}
	return x, func(y *value) *value {
		w, err := viewOfValue(y).reshape(append(slices.Clone(shape[:k]), last(y.shape)))
		if err != nil {
			panic("BUG: rows are cut as they were joined: " + err.Error())
		}
		return c.seen(w)
	}, nil
}

// pushCurve adds the ops of a curve of a tensor; nil, without an error: it is no function that is supported.
func pushCurve(c *call, n *Node, f *curve, x *value) (*value, error) {
	ops := []kernels.Op{f.activation()}
	if ops[0] == nil {
		ops[0] = f.affine()
	}
	if k, is := f.square(); ops[0] == nil && is {
		y, err := c.push(n, kernels.Affine{Factor: float32(k)}, as(x), nil, x)
		if err != nil {
			return nil, err
		}
		return c.push(n, kernels.Multiply{}, as(x), nil, x, y)
	}
	if ops[0] == nil {
		ops = f.stretched()
	}
	var made *value
	for _, op := range ops {
		var err error
		if made, err = c.push(n, op, as(x), nil, x); err != nil {
			return nil, err
		}
		x = made
	}
	return made, nil
}

// repeatedView is a view some of whose loops repeat elements, as one of a tensor that has all of them: of an image N,R,1,C whose rows are
// repeated.
func repeatedView(c *call, n *Node, v view) (view, error) {
	once, rows := view{step: v.step, from: v.from, axes: make([][]loop, 4)}, 1
	for i, loops := range v.axes {
		for _, l := range loops {
			switch {
			case l.stride == 0 && i == 0:
				return view{}, fmt.Errorf("a tensor of %v is repeated along the samples, which is not supported", v.shape())
			case l.stride == 0:
				rows *= l.n
			case i == 0:
				once.axes[0] = append(once.axes[0], l)
			default:
				once.axes[1] = append(once.axes[1], l)
			}
		}
	}
	once.axes[1] = merged(once.axes[1])
	x, err := c.arranged(n, once)
	if err != nil {
		return view{}, err
	}
	y, err := c.push(n, kernels.Resize{OutH: rows, OutW: 1, Nearest: true}, asImage, nil, x)
	if err != nil {
		return view{}, err
	}
	width := x.shape[1]
	w := view{step: y.step, axes: make([][]loop, len(v.axes))}
	sample, row, channel := extents(y.shape[1:])*x.shape[0], rows*width, width
	for i, loops := range v.axes {
		for _, l := range loops {
			stride := &channel
			switch {
			case i == 0:
				stride = &sample
			case l.stride == 0:
				stride = &row
			}
			*stride /= l.n
			w.axes[i] = append(w.axes[i], loop{l.n, *stride})
		}
		w.axes[i] = merged(w.axes[i])
	}
	return w, nil
}
