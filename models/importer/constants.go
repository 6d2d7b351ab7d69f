package importer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// literal is a Constant.
func literal(c *call) (*value, error) {
	if a := c.attribute("value"); a != nil && a.Tensor != nil {
		return a.Tensor.value()
	}
	for _, name := range []string{"value_int", "value_ints", "value_float"} {
		a := c.attribute(name)
		switch {
		case a == nil:
		case name == "value_ints":
			v := constant{numbers: make([]float64, len(a.Ints)), dims: []int{len(a.Ints)}}
			for i, n := range a.Ints {
				v.numbers[i] = float64(n)
			}
			return &value{constant: v}, nil
		default:
			return &value{constant: constant{numbers: []float64{float64(a.I) + float64(a.F)}}}, nil
		}
	}
	return nil, fmt.Errorf("it has no value that is supported")
}

// identity is its input; an initializer gets a name of its own.
func identity(c *call) (*value, error) { return c.at(0), nil }

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
	if err == nil && x != nil && x.tensor != nil && x.tensor.DType == Float32 && len(x.tensor.Dims) == len(shape) && x.tensor.Dims[0] == 1 {
		shape = c.batched(shape)
		for i, n := range x.tensor.Dims {
			if shape[i] == -1 {
				shape[i] = int(n)
			}
		}
		return &value{tensor: x.tensor, name: cmp.Or(x.name, c.In[0]), repeated: shape, from: c.Node, constant: x.constant}, nil
	}
	if err == nil && x != nil && x.shape != nil {
		return expanded(c, shape)
	}
	if err == nil && x != nil {
		keep(shape, &x.constant)
	}
	switch {
	case err != nil:
		return nil, err
	case isNumber(x) && len(x.dims) <= len(shape):
		return known(repeated(x.numbers[0], shape))
	case x != nil && x.mask != nil && x.mask.expands(shape):
		m := *x.mask
		m.dims = shape
		return &value{constant: constant{mask: &m}}, nil
	case x != nil && x.numbers != nil:
		dims, err := broadcast(x.dims, shape)
		if err != nil {
			return nil, err
		}
		return known(filled(dims, func(indices []int) float64 { return x.numbers[x.at(indices)] }))
	}
	return nil, errNoConstant
}

// expanded repeats axes of 1 of a tensor, which nothing but attention reads.
func expanded(c *call, shape []int) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	have := v.shape()
	if len(shape) != len(have) {
		return nil, fmt.Errorf("of %v to %v, and only along axes that there are is supported", have, shape)
	}
	v.axes = slices.Clone(v.axes)
	for i, n := range c.batched(shape) {
		switch {
		case n == -1 || n == have[i]:
		case have[i] == 1 && n > 0:
			v.axes[i] = []loop{{n, 0}}
		default:
			return nil, fmt.Errorf("of %v to %v", have, shape)
		}
	}
	return c.seen(v), nil
}

// shapeOf is the list of the extents.
func shapeOf(c *call) (*value, error) {
	x := c.at(0)
	if x == nil || x.shape == nil && x.numbers == nil {
		return nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	c.only("start", 0)
	shape := x.shape
	if shape == nil {
		shape = x.dims
	}
	v := constant{dims: []int{len(shape)}}
	for _, d := range shape {
		v.numbers = append(v.numbers, float64(d))
	}
	return &value{constant: v}, nil
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
	return known(repeated(fill, shape))
}

// ranged is the numbers from one to another.
func ranged(c *call) (*value, error) {
	all, are := c.constantInputs(3)
	for _, v := range all {
		are = are && len(v.numbers) == 1
	}
	if !are {
		return nil, errNoConstant
	}
	from, to, by := all[0].numbers[0], all[1].numbers[0], all[2].numbers[0]
	n := math.Ceil((to - from) / by)
	if !(n >= 1 && n <= MostElements) {
		return nil, fmt.Errorf("from %v to %v by %v has not from 1 to %d elements", from, to, by, MostElements)
	}
	v := constant{dims: []int{int(n)}}
	for i := range int(n) {
		v.numbers = append(v.numbers, from+float64(i)*by)
	}
	return &value{constant: v}, nil
}

// cumSum adds up the elements along an axis.
func cumSum(c *call) (*value, error) {
	x := c.at(0)
	if x == nil || x.numbers == nil {
		return nil, errNoConstant
	}
	axis := positive(c.int("axis", 0), len(x.dims))
	if axis < 0 || axis >= len(x.dims) {
		return nil, fmt.Errorf("axis %d of %v", axis, x.dims)
	}
	stride := extents(x.dims[axis+1:])
	out := constant{numbers: slices.Clone(x.numbers), dims: x.dims}
	for i := range out.numbers {
		if i/stride%x.dims[axis] > 0 {
			out.numbers[i] += out.numbers[i-stride]
		}
	}
	return &value{constant: out}, nil
}

// errNoConstant is the refusal of what is only computed when a file is opened.
var errNoConstant = fmt.Errorf("an input is computed from the model's input or is a parameter, and only of constants is supported")

// indexed takes elements out of a constant: the other inputs, broadcast to one shape, are the indices of its first axes.
func indexed(c *call) (*value, error) {
	if x, at := c.at(0), c.at(1); len(c.In) == 2 && x != nil && x.tensor != nil && at != nil && at.numbers != nil {
		if x.tensor.Trains || x.tensor.Frozen && len(at.dims) > 1 && x.numbers == nil {
			return pickRows(c, &at.constant)
		}
		known, err := knownInput(c, 0)
		if err != nil {
			return nil, err
		}
		was := c.values[c.In[0]]
		c.values[c.In[0]] = known
		defer func() { c.values[c.In[0]] = was }()
	}
	all, are := c.constantInputs(len(c.In))
	if !are || len(all) < 2 || all[0].numbers == nil || len(all)-1 > len(all[0].dims) {
		return nil, errNoConstant
	}
	x, by := all[0], all[1:]
	var dims []int
	places := make([][]int, len(by))
	for i, at := range by {
		var err error
		if at.numbers == nil {
			return nil, errNoConstant
		}
		if dims, err = broadcast(dims, at.dims); err != nil {
			return nil, err
		}
		if places[i], err = indicesOf(&at, x.dims[i]); err != nil {
			return nil, err
		}
	}
	k := len(dims)
	from := make([]int, len(x.dims))
	return known(filled(slices.Concat(dims, x.dims[len(by):]), func(indices []int) float64 {
		for i, at := range by {
			from[i] = places[i][at.at(indices[:k])]
		}
		copy(from[len(by):], indices[k:])
		return x.numbers[x.at(from)]
	}))
}

// takenAlong takes one element along an axis for each of the indices, which have as many axes.
func takenAlong(c *call) (*value, error) {
	all, are := c.constantInputs(2)
	if !are || all[0].numbers == nil || all[1].numbers == nil || len(all[0].dims) != len(all[1].dims) {
		return nil, errNoConstant
	}
	x, at := all[0], all[1]
	axis := positive(c.int("axis", 0), len(x.dims))
	if axis < 0 || axis >= len(x.dims) {
		return nil, fmt.Errorf("axis %d of %v", axis, x.dims)
	}
	for i, n := range at.dims {
		if i != axis && n > x.dims[i] {
			return nil, fmt.Errorf("indices of %v into %v", at.dims, x.dims)
		}
	}
	places, err := indicesOf(&at, x.dims[axis])
	if err != nil {
		return nil, err
	}
	from := make([]int, len(x.dims))
	return known(filled(at.dims, func(indices []int) float64 {
		copy(from, indices)
		from[axis] = places[at.at(indices)]
		return x.numbers[x.at(from)]
	}))
}

// trilu leaves the lower or the upper half of a mask.
func trilu(c *call) (*value, error) {
	x, upper, k := c.at(0), c.int("upper", 1) != 0, 0.0
	if v := c.at(1); v != nil && len(v.numbers) == 1 {
		k = v.numbers[0]
	}
	if x == nil || x.mask == nil {
		return nil, fmt.Errorf("only of constant square matrices is supported")
	}
	m := *x.mask
	switch {
	case !upper && k == 0:
		m.high = 0
	case upper && k == 1:
		m.low = 0
	default:
		return nil, fmt.Errorf("upper %v from diagonal %v on is not supported: want what is above the diagonal, or the rest", upper, k)
	}
	return &value{constant: constant{mask: &m}}, nil
}

// onlyConstant is its input, a constant.
func onlyConstant(c *call) (*value, error) {
	if _, are := c.constantInputs(1); !are || c.at(0).tensor != nil && c.at(0).tensor.Trains {
		return nil, errNoConstant
	}
	return c.at(0), nil
}

// knownInput returns input i, of an untrained tensor its numbers.
func knownInput(c *call, i int) (*value, error) {
	v := c.at(i)
	if !v.untrained() {
		return v, nil
	}
	numbers, err := v.tensor.numbers()
	return &value{constant: numbers}, err
}
